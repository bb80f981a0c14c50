"""The rule of every operation that has none of its own.

The backward of a node maps a cotangent z to Jᵀz, which is linear in z; differentiated with respect to z it is J,
whatever the operation. That takes two passes through the node where a rule takes one, and works wherever the node's
backward can be differentiated: double backward, one operation at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .registry import Tangent, Unsupported


def transposed_backward(node: Any, *tangents: Tangent) -> Tensor | tuple[Tensor | None, ...]:
    """The tangent of a node's output, or of each of several."""
    name = node.name()
    device = next(tangent.device for tangent in tangents if tangent is not None)
    try:
        with torch.enable_grad():
            cotangents = [
                torch.zeros(about.shape, dtype=about.dtype, device=device, requires_grad=True)
                for about in node._input_metadata
            ]
            found = node(*cotangents)
            pulled = found if isinstance(found, tuple) else (found,)
            pairs = [(p, t) for p, t in zip(pulled, tangents, strict=True) if t is not None]
            if not all(isinstance(p, Tensor) and p.requires_grad for p, _ in pairs):
                raise Unsupported(name)  # cut off from z: the tangent would miss what comes before
            moved = torch.autograd.grad(
                [p for p, _ in pairs], cotangents, [t.expand_as(p).to(p.dtype) for p, t in pairs], allow_unused=True
            )
    except (RuntimeError, NotImplementedError, TypeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise Unsupported(name) from error
    return moved[0] if len(moved) == 1 else tuple(moved)

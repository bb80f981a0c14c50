"""Hessian-vector products, for methods that differentiate through a gradient step on the weights."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..runtime.precision import full_precision

log = logging.getLogger("mslg")

_logged: set[str] = set()  # the errors of operators without a second backward pass, each logged once


LossAt = Callable[[Sequence[Tensor]], Tensor]
Inside = Callable[[Sequence[Tensor]], AbstractContextManager[None]]


def hessian_vector_product(
    loss: LossAt, parameters: Sequence[Tensor], vector: Sequence[Tensor], *, inside: Inside | None = None
) -> list[Tensor]:
    """∇²loss(parameters)·vector by double backward. If an operator does not support it, with math attention, or else by
    a central difference of gradients. Always in full precision: half is too coarse for second derivatives.

    Args:
        loss: from parameters to a 0-d loss.
        parameters: where to take the Hessian.
        vector: one tensor per parameter, of its shape.
        inside: a context for the loss and its gradients, given the parameters, such as `ForwardPass.with_weights`.

    Returns:
        One tensor per parameter, of its shape.
    """
    with full_precision(vector[0].device):
        return _product(loss, parameters, vector, inside or (lambda _: nullcontext()))


def _product(loss: LossAt, parameters: Sequence[Tensor], vector: Sequence[Tensor], inside: Inside) -> list[Tensor]:
    try:
        return _twice(loss, parameters, vector, inside)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        reason = " ".join(str(error).split())[:160]
    try:
        with sdpa_kernel(SDPBackend.MATH):
            return _twice(loss, parameters, vector, inside)
    except RuntimeError:
        if reason not in _logged:
            _logged.add(reason)
            log.warning("no second derivative (%s); using differences of gradients instead", reason)
    return _difference(loss, parameters, vector, inside)


def _twice(loss: LossAt, parameters: Sequence[Tensor], vector: Sequence[Tensor], inside: Inside) -> list[Tensor]:
    leaves = [p.detach().requires_grad_() for p in parameters]
    with torch.enable_grad(), inside(leaves):
        gradient = torch.autograd.grad(loss(leaves), leaves, create_graph=True, allow_unused=True)
        used = [(g, v) for g, v in zip(gradient, vector, strict=True) if g is not None]
        if not all(g.requires_grad for g, _ in used):
            # A constant gradient, or an operator without a second derivative: only a difference tells which.
            raise RuntimeError("a gradient without a graph of its own")
        product = torch.autograd.grad([g for g, _ in used], leaves, [v for _, v in used], allow_unused=True)
    return [torch.zeros_like(p) if h is None else h for p, h in zip(leaves, product, strict=True)]


def _difference(loss: LossAt, parameters: Sequence[Tensor], vector: Sequence[Tensor], inside: Inside) -> list[Tensor]:
    size = torch.linalg.vector_norm(torch.stack(torch._foreach_norm([p.detach() for p in parameters])))
    length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(vector))))
    step = torch.finfo(size.dtype).eps ** (1 / 3) * size.clamp_min(1e-3) / length.clamp_min(1e-30)

    def gradient_at(sign: int) -> list[Tensor]:
        leaves = [(p.detach() + sign * step * v).requires_grad_() for p, v in zip(parameters, vector, strict=True)]
        with torch.enable_grad(), inside(leaves):
            gradient = torch.autograd.grad(loss(leaves), leaves, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(leaves, gradient, strict=True)]

    return [(ahead - behind) / (2 * step) for ahead, behind in zip(gradient_at(1), gradient_at(-1), strict=True)]

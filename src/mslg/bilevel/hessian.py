"""Hessian times vector, for methods that differentiate through a gradient step on the weights themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..runtime.precision import full_precision

log = logging.getLogger("mslg")

# The operators that have refused a second backward pass, by the message they refused with: told once.
_told: set[str] = set()


def hessian_vector_product(
    loss: Callable[[Sequence[Tensor]], Tensor], parameters: Sequence[Tensor], vector: Sequence[Tensor]
) -> list[Tensor]:
    """∇²loss(parameters)·vector, by double backward; where an operator refuses, with math attention, then by a
    central difference of gradients. Always in full precision: little is left of a second derivative in half."""
    with full_precision(vector[0].device):
        return _product(loss, parameters, vector)


def _product(
    loss: Callable[[Sequence[Tensor]], Tensor], parameters: Sequence[Tensor], vector: Sequence[Tensor]
) -> list[Tensor]:
    try:
        return _twice(loss, parameters, vector)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        reason = " ".join(str(error).split())[:160]
    try:
        with sdpa_kernel(SDPBackend.MATH):
            return _twice(loss, parameters, vector)
    except RuntimeError:
        if reason not in _told:
            _told.add(reason)
            log.warning("no second derivative (%s); using differences of gradients instead", reason)
    return _difference(loss, parameters, vector)


def _twice(
    loss: Callable[[Sequence[Tensor]], Tensor], parameters: Sequence[Tensor], vector: Sequence[Tensor]
) -> list[Tensor]:
    leaves = [p.detach().requires_grad_() for p in parameters]
    with torch.enable_grad():
        gradient = torch.autograd.grad(loss(leaves), leaves, create_graph=True, allow_unused=True)
        used = [(g, v) for g, v in zip(gradient, vector) if g is not None]
        if not all(g.requires_grad for g, _ in used):
            # A constant gradient, or an operator that cuts its second derivative off: only a difference tells which.
            raise RuntimeError("a gradient without a graph of its own")
        product = torch.autograd.grad([g for g, _ in used], leaves, [v for _, v in used], allow_unused=True)
    return [torch.zeros_like(p) if h is None else h for p, h in zip(leaves, product)]


def _difference(
    loss: Callable[[Sequence[Tensor]], Tensor], parameters: Sequence[Tensor], vector: Sequence[Tensor]
) -> list[Tensor]:
    size = torch.linalg.vector_norm(torch.stack(torch._foreach_norm([p.detach() for p in parameters])))
    length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(vector))))
    step = torch.finfo(size.dtype).eps ** (1 / 3) * size.clamp_min(1e-3) / length.clamp_min(1e-30)

    def gradient_at(sign: int) -> list[Tensor]:
        leaves = [(p.detach() + sign * step * v).requires_grad_() for p, v in zip(parameters, vector)]
        with torch.enable_grad():
            gradient = torch.autograd.grad(loss(leaves), leaves, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(leaves, gradient)]

    return [(ahead - behind) / (2 * step) for ahead, behind in zip(gradient_at(1), gradient_at(-1))]

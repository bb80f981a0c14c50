"""How precisely a network computes: in float32, or in half precision where that is enough.

In half precision the network's own products run in bf16 or fp16, by torch.autocast. Weights, logits, losses, label
tables and optimizers stay in float32. fp16 has few exponents: what is smaller than 6e-8 vanishes in it, so losses are
multiplied by a factor before their gradients are taken, and the gradients divided by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..registry import expect_name

Precision = Literal["float32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
FACTOR = 2.0**10  # on losses whose gradients are taken outside the optimizer's steps, in fp16


def check_precision(precision: str, device: torch.device) -> Precision:
    """The precision, if there is one of this name and the device can compute in it."""
    expect_name("precision", precision, PRECISIONS)
    if precision == "fp16" and device.type == "cpu":
        raise ValueError('precision is "fp16", which is for GPUs, and this run is on the CPU; use "bf16" or "float32"')
    return precision  # type: ignore[return-value]


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Inside, networks compute in this precision."""
    if precision == "float32":
        return nullcontext()
    # No cache of cast weights: it would outlive the optimizer's step, and the next pass would see the old ones.
    return torch.autocast(device.type, HALF[precision], cache_enabled=False)


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, everything is computed as precisely as it is stored."""
    return torch.autocast(device.type, enabled=False) if half(device) is not None else nullcontext()


def half(device: torch.device) -> torch.dtype | None:
    """The half precision that networks compute in at present, if they do."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def gradient(loss: Tensor, leaves: Sequence[Tensor], **options: Any) -> Sequence[Tensor | None]:
    """`torch.autograd.grad`, saved from the few exponents of fp16: what overflows nevertheless counts as zero."""
    if half(loss.device) is not torch.float16:
        return torch.autograd.grad(loss, leaves, **options)
    found = torch.autograd.grad(loss * FACTOR, leaves, **options)
    return [None if g is None else (g / FACTOR).nan_to_num_(0.0, 0.0, 0.0) for g in found]

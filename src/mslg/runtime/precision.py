"""The precision of networks: float32, or mixed precision with bf16 or fp16.

In mixed precision, matrix products and convolutions run in bf16 or fp16, by torch.autocast. Weights, logits, losses,
label tables and optimizers stay in float32. Values below 6e-8 underflow in fp16, so losses are scaled before their
gradients are taken, and the gradients scaled back.
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
SCALE = 2.0**10  # of losses whose gradients are taken outside the optimizer's steps, in fp16


def check_precision(precision: str, device: torch.device) -> Precision:
    """The precision, if it is known and the device supports it."""
    expect_name("precision", precision, PRECISIONS)
    if precision == "fp16" and device.type == "cpu":
        raise ValueError(
            'precision is "fp16", which only GPUs support; this run is on the CPU; use "bf16" or "float32"'
        )
    return precision  # type: ignore[return-value]


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Inside, networks compute in this precision."""
    if precision == "float32":
        return nullcontext()
    # No cache of cast weights: it would outlive the optimizer's step, and the next pass would use the old ones.
    return torch.autocast(device.type, HALF[precision], cache_enabled=False)


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, autocast is disabled."""
    return torch.autocast(device.type, enabled=False) if half(device) is not None else nullcontext()


def half(device: torch.device) -> torch.dtype | None:
    """The dtype of autocast, if it is enabled."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def gradient(loss: Tensor, leaves: Sequence[Tensor], **options: Any) -> Sequence[Tensor | None]:
    """`torch.autograd.grad` with loss scaling in fp16; what overflows nevertheless becomes zero."""
    if half(loss.device) is not torch.float16:
        return torch.autograd.grad(loss, leaves, **options)
    gradients = torch.autograd.grad(loss * SCALE, leaves, **options)
    return [None if g is None else (g / SCALE).nan_to_num_(0.0, 0.0, 0.0) for g in gradients]

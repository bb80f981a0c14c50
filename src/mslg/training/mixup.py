"""Mixup (Zhang et al. 2018): train on means of two samples and of their labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..data.batch import Inputs

DENSE = 0.1  # least fraction of inputs that are not zero: the mean of two sparse texts is no text


def can_mix(inputs: Inputs) -> bool:
    """Whether a mean of two inputs is an input: floating-point tensors that are not mostly zeros."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return False
    return bool((inputs != 0).float().mean() >= DENSE)


def mixed(inputs: Tensor, target: Tensor, parts: Sequence[int] = ()) -> tuple[Tensor, Tensor]:
    """Inputs and soft targets mixed with others in one proportion, drawn from Beta(1, 1).

    Args:
        inputs: (batch, ...).
        target: (batch, classes).
        parts: sizes of the parts of the batch, each of which is mixed within itself; by default one part.
    """
    device = inputs.device
    share = torch.rand((), device=device)
    share = torch.maximum(share, 1 - share)
    order, start = [], 0
    for size in parts or (len(inputs),):
        order.append(start + torch.randperm(size, device=device))
        start += size
    other = torch.cat(order)
    return _mix(inputs, other, share), _mix(target, other, share)


def _mix(rows: Tensor, other: Tensor, share: Tensor) -> Tensor:
    # In place, and by index_select: a quarter of the time of the formula on feature vectors.
    return (share * rows).add_(rows.index_select(0, other).mul_(1 - share))

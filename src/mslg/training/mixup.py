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


def mixed(inputs: Tensor, target: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs and soft targets mixed with others in one proportion, drawn from Beta(1, 1).

    Args:
        inputs: (batch, ...).
        target: (batch, classes).
        other: (batch,) the place in the batch of the sample that each is mixed with.
    """
    share = torch.rand((), device=inputs.device)
    share = torch.maximum(share, 1 - share)
    return _mix(inputs, other, share), _mix(target, other, share)


def neighbours(parts: Sequence[int]) -> Tensor:
    """(batch,) for each sample the one before it, each part of the batch within itself: in a batch that was drawn at
    random this is as good as a shuffle, and can be kept."""
    return torch.cat([sum(parts[:number]) + torch.arange(size).roll(1) for number, size in enumerate(parts)])


def _mix(rows: Tensor, other: Tensor, share: Tensor) -> Tensor:
    # In place, and by index_select: a quarter of the time of the formula on feature vectors.
    return (share * rows).add_(rows.index_select(0, other).mul_(1 - share))

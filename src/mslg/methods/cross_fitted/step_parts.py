"""What the steps of stage 3 have in common: computed once, because a step on a small network takes less than a
millisecond."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...training.mixup import neighbours
from .class_shares import ClassShares, clean_shift, noisy_shift


class StepParts(NamedTuple):
    """What is the same in all steps with so many noisy samples followed by so many clean ones."""

    sizes: tuple[int, int]
    shift: Tensor  # (samples, classes) of their logits
    shifts: bool  # whether any of it is not zero
    weight: Tensor  # (samples,) of their losses in the sum: both parts have their mean, the clean one's weighed
    other: Tensor  # (samples,) whom each is mixed with

    @classmethod
    def of(
        cls, sizes: tuple[int, int], offset: Tensor, shares: ClassShares, clean_weight: float, shifts: bool
    ) -> StepParts:
        both = noisy_shift(offset, shares), clean_shift(offset, shares)
        shift = torch.cat([each.expand(count, -1) for each, count in zip(both, sizes, strict=True)])
        of_each = shift.new_tensor([1 / sizes[0], clean_weight / sizes[1]])
        weight = of_each.repeat_interleave(shift.new_tensor(sizes).long())
        return cls(sizes, shift, shifts, weight, neighbours(sizes).to(offset.device))

"""The result of adding noise, and the checks that all kinds of noise share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Corruption:
    """Corrupted labels.

    Args:
        label: (samples,) int64 corrupted labels.
        before: (samples,) int64 labels before.
        nominal: (classes, classes) intended transition matrix; rows true, columns given.
    """

    label: Tensor
    before: Tensor
    nominal: Tensor

    @property
    def rate(self) -> float:
        """The share of labels that changed."""
        return float((self.label != self.before).double().mean())

    @property
    def realised(self) -> Tensor:
        """(classes, classes) realised transition matrix; the row of a class without samples is that of the identity."""
        return transition_of(self.before, self.label, len(self.nominal))


def transition_of(before: Tensor, after: Tensor, classes: int) -> Tensor:
    """(classes, classes) share of each class that went to each class; the row of an empty class is the identity's."""
    counts = torch.bincount(before.long() * classes + after.long(), minlength=classes**2).view(classes, classes)
    totals = counts.sum(1, keepdim=True)
    return torch.where(totals > 0, counts.double() / totals.clamp_min(1), torch.eye(classes, dtype=torch.float64))


def check(label: Tensor, rate: float | None, classes: int) -> None:
    """Raise unless the rate is a share, there are two classes or more, and labels are class numbers."""
    if rate is None:
        raise ValueError("this noise needs a rate (--rate): the share of labels to corrupt, between 0 and 1")
    if not 0 <= rate <= 1:
        raise ValueError(f"the noise rate is {rate}; it must be between 0 and 1")
    if classes < 2:
        raise ValueError(
            f"a wrong label needs another class, and there is {classes}; use data with two classes or more"
        )
    if label.dtype != torch.int64 or label.dim() != 1:
        raise TypeError(f"the labels are {label.dtype} of shape {tuple(label.shape)}; a flat int64 tensor is needed")
    wrong = label[(label < 0) | (label >= classes)]
    if len(wrong):
        raise ValueError(f"there is the label {int(wrong[0])} ({len(wrong)} such samples); allowed: 0 to {classes - 1}")


def floor_count(share: float) -> int:
    """A number of samples rounded down. The small addend corrects rounding errors: 0.35·20 is 7, not 6.999…."""
    return int(share + 1e-9)

"""What a noise generator returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Corruption:
    """Corrupted labels with the transition matrix that was meant; rows true, columns given."""

    label: Tensor
    before: Tensor
    nominal: Tensor

    @property
    def rate(self) -> float:
        """The share of labels that changed."""
        return float((self.label != self.before).double().mean())

    @property
    def realised(self) -> Tensor:
        """The transition matrix as it came out; the row of a class without samples is that of the identity."""
        classes = len(self.nominal)
        counts = torch.bincount(self.before * classes + self.label, minlength=classes**2).view(classes, classes)
        totals = counts.sum(1, keepdim=True)
        return torch.where(totals > 0, counts / totals.clamp_min(1), torch.eye(classes)).double()


def check_rate(rate: float) -> None:
    """A noise rate is a share."""
    if not 0 <= rate <= 1:
        raise ValueError(f"a noise rate of {rate} is not possible; it is a share between 0 and 1")

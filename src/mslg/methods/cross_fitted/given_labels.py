"""Given labels beside soft ones, for a deployed network that does not memorise.

Soft labels cannot know more than the fold networks, which were trained for a part of the run and without their fold. A
network that memorises needs them all the same: it would learn wrong given labels by heart. One that does not learns
from the given labels of all samples, for the rest of the run, what no fold network has had the time for. So most of its
loss is then that of given labels, in the two forms in which fold networks have learned from them:

    (1 − a − b) · cross entropy to the soft label  +  a · cross entropy  +  b · forward loss through T

divided as the clean samples weigh these networks.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ...training.losses import cross_entropy, forward_cross_entropy

ENOUGH_RIGHT = 0.5  # share of right labels from which on they are learned as they are; less, in proportion, below


class GivenLabels(NamedTuple):
    """The weights of both losses of given labels."""

    plain: float = 0.0
    corrected: float = 0.0

    @classmethod
    def of(cls, most: float, weights: Tensor, right: float) -> GivenLabels:
        """At most this weight in all, divided by those of the sources (networks of given labels, of clean samples, of
        the forward loss, regression), where this share of the given labels is right.

        Features of 50,000 images in six epochs, a tuning seed, weights of 0, 0.8 and 1 (the sweep given-labels in
        benchmarks/recipes): uniform 40 % 73.0, 73.4 and 73.6; feature-dependent 40 % 72.6, 74.6 and 74.9; released
        feature-dependent 60 % 71.4, 71.1 and 70.0."""
        noisy, _, forward, ridge = (weights[:4] / weights[:4].sum().clamp_min(1e-12)).tolist()
        return cls(most * noisy * min(1.0, right / ENOUGH_RIGHT), most * (forward + ridge))

    def losses(self, soft: Tensor, log_probs: Tensor, label: Tensor, transition: Tensor) -> Tensor:
        """(n,) the whole losses, from those to `soft` labels."""
        total = (1 - self.plain - self.corrected) * soft
        if self.plain:
            total = total + self.plain * cross_entropy(log_probs, label)
        if self.corrected:
            total = total + self.corrected * forward_cross_entropy(log_probs, label, transition)
        return total

    def __bool__(self) -> bool:
        return self.plain + self.corrected > 0

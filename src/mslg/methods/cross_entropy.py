"""Cross entropy on the given labels: plain training, and the first control."""

from __future__ import annotations

from collections.abc import Iterator

from ..data.batch import Batch
from ..training.method import SingleNetwork, StepResult


class CrossEntropy(SingleNetwork):
    """Mean of −log p at the given label."""

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        return self.cross_entropy_step(batch)

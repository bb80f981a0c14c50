"""Cross entropy on the given labels: what everybody does, and the first control."""

from __future__ import annotations

from collections.abc import Iterator

from ..data.batch import Batch
from ..training.losses import cross_entropy
from ..training.method import SingleNetwork, StepResult


class CrossEntropy(SingleNetwork):
    """Mean of −log p at the given label."""

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        log_probs = self.log_probs(batch.inputs)
        loss = cross_entropy(log_probs, batch.label).mean()
        self.descend(loss)
        return StepResult({"loss": loss.detach()}, log_probs.detach())

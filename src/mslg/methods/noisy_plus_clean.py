"""Control: cross entropy on the noisy and the clean batch together, as if all labels were equally good."""

from __future__ import annotations

from collections.abc import Iterator

from ..data.batch import Batch
from ..training.losses import cross_entropy
from ..training.method import SingleNetwork, StepResult, Task


class NoisyPlusClean(SingleNetwork):
    """The loss is the mean over the noisy batch plus `clean_weight` times the mean over the clean batch."""

    needs = frozenset({"clean set"})

    def __init__(self, task: Task, *, clean_weight: float = 1.0) -> None:
        super().__init__(task)
        self.clean_weight = clean_weight

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        verified = next(clean)
        log_probs = self.log_probs(batch.inputs)
        noisy_loss = cross_entropy(log_probs, batch.label).mean()
        clean_loss = cross_entropy(self.log_probs(verified.inputs), verified.label).mean()
        loss = noisy_loss + self.clean_weight * clean_loss
        self.descend(self.optimizer, loss)
        return StepResult({"loss": loss, "clean/loss": clean_loss}, log_probs)

    def relative_cost(self, epoch: int) -> float:
        return 2.0

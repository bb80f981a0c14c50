"""Control: cross entropy on the noisy samples, then fine-tuning on the clean ones at a lower learning rate."""

from __future__ import annotations

from collections.abc import Iterator

from ..data.batch import Batch
from ..training.losses import cross_entropy
from ..training.method import StepResult, Task
from ..training.schedules import first_epoch
from .clean_only import CleanOnly


class NoisyThenClean(CleanOnly):
    """Noisy batches up to the switch, clean batches from there on, as many steps an epoch as before.

    switch          part of the run (or epochs, from 1 on) before the fine-tuning
    fine_tune_rate  factor on the learning rate while fine-tuning
    """

    def __init__(self, task: Task, *, switch: float = 2 / 3, fine_tune_rate: float = 0.1) -> None:
        super().__init__(task)
        if switch <= 0:
            raise ValueError(f"switch is {switch}; it must be above 0, or use the method clean-only")
        if fine_tune_rate <= 0:
            raise ValueError(f"fine_tune_rate is {fine_tune_rate}; it must be above 0, as a rule 0.1")
        self.first_clean_epoch = first_epoch("the fine-tuning on clean samples", switch, task.epochs)
        self.fine_tune_rate = fine_tune_rate

    def learning_rate_factor(self, progress: float) -> float:
        """Both parts go through the whole schedule: fine-tuning at the end of a decay would change nothing."""
        switch = self.first_clean_epoch / self.task.epochs
        if self.epoch < self.first_clean_epoch:
            return self.task.schedule(progress / switch)
        return self.fine_tune_rate * self.task.schedule((progress - switch) / (1 - switch))

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        if self.epoch >= self.first_clean_epoch:
            return super().step(batch, clean)
        log_probs = self.log_probs(batch.inputs)
        loss = cross_entropy(log_probs, batch.label).mean()
        self.descend(loss)
        return StepResult({"loss": loss.detach()}, log_probs.detach())

    def relative_cost(self, epoch: int) -> float:
        return super().relative_cost(epoch) if epoch >= self.first_clean_epoch else 1.0

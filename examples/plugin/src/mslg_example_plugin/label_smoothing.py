"""Label smoothing (Lukasik et al., 2020): the target is the given label mixed with the uniform distribution."""

from __future__ import annotations

from collections.abc import Iterator

from mslg import Batch, Task
from mslg.training.method import SingleNetwork, StepResult


class LabelSmoothing(SingleNetwork):
    """Cross entropy with smoothed labels.

    smoothing  weight of the uniform distribution; 0 is cross entropy
    """

    def __init__(self, task: Task, *, smoothing: float = 0.1) -> None:
        super().__init__(task)
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing is {smoothing}; it must be at least 0 and below 1")
        self.smoothing = smoothing

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        log_probs = self.log_probs(batch.inputs)
        given = log_probs.gather(1, batch.label.unsqueeze(1)).squeeze(1)
        loss = -((1 - self.smoothing) * given + self.smoothing * log_probs.mean(1)).mean()
        self.descend(self.optimizer, loss)
        return StepResult({"loss": loss}, log_probs)

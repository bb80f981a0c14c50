"""Control: cross entropy on the noisy samples, then fine-tuning on the clean ones at a lower learning rate."""

from __future__ import annotations

from collections.abc import Iterator

from ..data.batch import Batch
from ..networks.evaluating import evaluating
from ..training.method import SingleNetwork, StepResult, Task
from ..training.schedules import Restarted, first_epoch


class NoisyThenClean(SingleNetwork):
    """Noisy batches up to the switch, clean batches after it, with the same number of steps per epoch.

    switch          fraction of the run, or epochs if ≥ 1, before the fine-tuning
    fine_tune_rate  factor on the learning rate while fine-tuning
    """

    needs = frozenset({"clean set"})

    def __init__(self, task: Task, *, switch: float = 2 / 3, fine_tune_rate: float = 0.1) -> None:
        super().__init__(task)
        if switch <= 0:
            raise ValueError(f"switch is {switch}; it must be above 0, or use the method clean-only")
        if fine_tune_rate <= 0:
            raise ValueError(f"fine_tune_rate is {fine_tune_rate}; it must be above 0, usually 0.1")
        self.first_clean_epoch = first_epoch("the fine-tuning on clean samples", switch, task.epochs)
        # Each stage has the whole schedule: fine-tuning at the end of a decay would change nothing.
        start = self.first_clean_epoch / task.epochs
        self.schedule = Restarted(start, task.schedule, task.schedule, factor=fine_tune_rate)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        if self.epoch < self.first_clean_epoch:
            return self.cross_entropy_step(batch)
        trained = self.cross_entropy_step(next(clean))
        with evaluating(self.network):  # in training mode, noisy samples would enter the batch-norm statistics
            return StepResult(trained.scalars, self.log_probs(batch.inputs))

    def relative_cost(self, epoch: int) -> float:
        return 1.0 if epoch < self.first_clean_epoch else 4 / 3  # one more forward pass

"""Base of the loss-correction methods: training through a transition matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.splits import Splits
from ..networks.evaluating import evaluating
from ..training.method import SingleNetwork, StepResult, Task
from ..training.schedules import Restarted


class LossCorrection(SingleNetwork):
    """A network trained through a transition matrix.

    A matrix that is not known is estimated by a first network, trained by cross entropy on the given labels for the
    warm-up. Then a new network starts from scratch, with the whole learning-rate schedule.

    Args:
        task: what is known about the problem.
        known: (classes, classes) matrix, or None to estimate it.
        warm_up: fraction of the run, or epochs if ≥ 1, that trains the first network.
    """

    transition: Tensor

    def __init__(self, task: Task, known: Tensor | None, warm_up: float) -> None:
        super().__init__(task)
        self.first_corrected_epoch = 0
        self.known = known is not None
        if known is None:
            if warm_up <= 0 and not task.warm:
                raise ValueError(f"warm_up is {warm_up}; it must be above 0: it trains the network that estimates T")
            self.first_corrected_epoch = task.warm_up_epochs(warm_up, before="the corrected training")
        self.schedule = Restarted(self.first_corrected_epoch / task.epochs, task.schedule, task.schedule)
        matrix = torch.eye(task.classes) if known is None else known
        self.register_buffer("transition", matrix.to(task.device, torch.float32))

    def estimate(self, data: Splits) -> Tensor:
        """The (classes, classes) matrix, from the network trained so far, which is in evaluation mode."""
        raise NotImplementedError

    def corrected_step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        """A step with the matrix."""
        raise NotImplementedError

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        if epoch == 0 or epoch != self.first_corrected_epoch:
            return
        with evaluating(self.network):
            self.transition.copy_(self.estimate(data))
        self.restart()

    def continue_from(self, state: Mapping[str, Any]) -> None:
        present = self.transition.clone()
        super().continue_from(state)
        if self.known:  # it may have changed since the earlier run; an estimated one is kept
            self.transition.copy_(present)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        corrected = self.epoch >= self.first_corrected_epoch
        return self.corrected_step(batch, clean) if corrected else self.cross_entropy_step(batch)

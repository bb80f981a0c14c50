"""Training through a transition matrix: what the loss-correction methods share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.splits import Splits
from ..training.losses import cross_entropy
from ..training.method import SingleNetwork, StepResult, Task
from ..training.schedules import first_epoch


class Corrected(SingleNetwork):
    """A network trained through a transition matrix.

    An unknown matrix is estimated by a first network, trained by cross entropy on the given labels for the first part
    of the run. Then a new network starts from scratch, and goes through the whole learning-rate schedule as it did.
    """

    transition: Tensor

    def __init__(self, task: Task, known: Tensor | None, warm_up: float) -> None:
        super().__init__(task)
        self.first_corrected_epoch = 0
        self.known = known is not None
        if known is None and not task.warm:
            if warm_up <= 0:
                raise ValueError(f"warm_up is {warm_up}; it must be above 0: the matrix is estimated by what it trains")
            self.first_corrected_epoch = first_epoch("the corrected training", warm_up, task.epochs)
        matrix = torch.eye(task.classes) if known is None else known
        self.register_buffer("transition", matrix.to(task.device, torch.float32))

    def estimate(self, data: Splits) -> Tensor:
        """The matrix, from the network trained so far (in evaluation mode)."""
        raise NotImplementedError

    def corrected_step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        """A step once the matrix is there."""
        raise NotImplementedError

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        if epoch == 0 or epoch != self.first_corrected_epoch:
            return
        self.network.eval()
        with torch.no_grad():
            self.transition.copy_(self.estimate(data))
        self.network = self.task.new_network().train()
        self.optimizer = self.add_optimizer("network", [p for p in self.network.parameters() if p.requires_grad])

    def continue_from(self, state: Mapping[str, Any]) -> None:
        told = self.transition.clone()
        super().continue_from(state)
        if self.known:  # one that was told may be another than before; one that was estimated is kept
            self.transition.copy_(told)

    def learning_rate_factor(self, progress: float) -> float:
        start = self.first_corrected_epoch / self.task.epochs
        if self.epoch < self.first_corrected_epoch:
            return self.task.schedule(progress / start)
        return self.task.schedule((progress - start) / (1 - start))

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        if self.epoch >= self.first_corrected_epoch:
            return self.corrected_step(batch, clean)
        log_probs = self.log_probs(batch.inputs)
        loss = cross_entropy(log_probs, batch.label).mean()
        self.descend(loss)
        return StepResult({"loss": loss.detach()}, log_probs.detach())

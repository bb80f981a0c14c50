"""Control: cross entropy on the clean samples alone, for as many steps as the others take."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..data.batch import Batch
from ..training.losses import cross_entropy
from ..training.method import SingleNetwork, StepResult


class CleanOnly(SingleNetwork):
    """Trains on the clean batch; the noisy batch is only looked at, for the history."""

    needs = frozenset({"clean set"})

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        verified = next(clean)
        loss = cross_entropy(self.log_probs(verified.inputs), verified.label).mean()
        self.descend(loss)
        self.network.eval()  # a look in training mode would move batch-norm statistics towards the noisy samples
        with torch.no_grad():
            seen = self.log_probs(batch.inputs)
        self.network.train()
        return StepResult({"loss": loss.detach()}, seen)

    def relative_cost(self, epoch: int) -> float:
        return 4 / 3  # the look is a forward pass

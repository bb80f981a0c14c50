"""Control: cross entropy on the clean samples alone, for as many steps as the other methods take."""

from __future__ import annotations

from collections.abc import Iterator

from ..data.batch import Batch
from ..networks.evaluating import evaluating
from ..training.method import SingleNetwork, StepResult


class CleanOnly(SingleNetwork):
    """Trains on the clean batch; the noisy batch is only predicted, for the history."""

    needs = frozenset({"clean set"})
    trains_on_noisy = False

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        trained = self.cross_entropy_step(next(clean))
        with evaluating(self.network):  # in training mode, noisy samples would enter the batch-norm statistics
            return StepResult(trained.scalars, self.log_probs(batch.inputs))

    def relative_cost(self, epoch: int) -> float:
        return 4 / 3  # one more forward pass

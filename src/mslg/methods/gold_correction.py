"""Control: gold loss correction (Hendrycks et al., 2018), the strongest simple use of a clean set.

    mean of −log (pᵀT) at the given label over noisy samples  +  clean_weight · mean of −log p over clean samples

T[i, j] = P(given j | true i) is counted on clean samples with given and verified labels. Without these, a network
trained on the noisy labels predicts the label that each clean sample would be given; then training starts afresh.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ..data.batch import Batch
from ..data.splits import Splits
from ..noise.transition_matrix import count, expected_counts, smooth
from ..training.losses import cross_entropy, forward_cross_entropy
from ..training.method import StepResult, Task
from .loss_correction import LossCorrection


class GoldCorrection(LossCorrection):
    """Forward correction on noisy samples and cross entropy on clean ones, in the same step.

    warm_up       without samples with given and verified labels: fraction of the run, or epochs if ≥ 1, that trains the
                  estimating network
    clean_weight  of the clean samples' loss
    smoothing     pseudo-samples added to each row of the counts, spread as in the matrix of all classes together; by
                  default as many as best predict each sample with both labels from the others, without these none
    """

    needs = frozenset({"clean set"})

    def __init__(
        self, task: Task, *, warm_up: float = 1 / 3, clean_weight: float = 1.0, smoothing: float | None = None
    ) -> None:
        for name, value in {"clean_weight": clean_weight, "smoothing": smoothing or 0.0}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        known = None
        if task.pairs is not None and len(task.pairs[0]):
            known = smooth(count(*task.pairs, task.classes), smoothing)
        super().__init__(task, known, warm_up)
        self.clean_weight, self.smoothing = clean_weight, smoothing

    def estimate(self, data: Splits) -> Tensor:
        if data.clean is None:
            raise ValueError(
                "gold correction needs clean samples and there are none; pass clean= (--clean): a set of verified "
                "samples, or a number of verified samples to take out of the data"
            )
        return smooth(expected_counts(self.log_probs, data, self.task.classes), self.smoothing or 0.0)

    def corrected_step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        verified = next(clean)
        log_probs = self.log_probs(batch.inputs)
        noisy_loss = forward_cross_entropy(log_probs, batch.label, self.transition).mean()
        clean_loss = cross_entropy(self.log_probs(verified.inputs), verified.label).mean()
        loss = noisy_loss + self.clean_weight * clean_loss
        self.descend(self.optimizer, loss)
        return StepResult({"loss": loss, "clean/loss": clean_loss}, log_probs)

    def relative_cost(self, epoch: int) -> float:
        return 1.0 if epoch < self.first_corrected_epoch else 2.0

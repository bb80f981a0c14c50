"""Loss correction (Patrini et al., 2017): train the network's predictions as they would look after the noise.

    forward:  −log (pᵀT) at the given label          backward:  Σ_c (T⁻¹)[given, c]·(−log p_c)

T[i, j] = P(given j | true i) is known, or counted on samples with given and verified labels, or estimated from anchors:
the samples that a network trained on the noisy labels assigns to a class with the highest probability.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.splits import Splits
from ..noise.transition_matrix import anchors, check_transition, count, smooth
from ..registry import expect_name
from ..runtime.distributed import gathered
from ..training.losses import backward_cross_entropy, forward_cross_entropy
from ..training.method import StepResult, Task
from .loss_correction import LossCorrection

log = logging.getLogger("mslg")

Matrix = Literal["given", "anchors", "pairs"]
Correction = Literal["forward", "backward"]


class ForwardCorrection(LossCorrection):
    """Mean of the corrected loss; predictions are the network's own, before the noise.

    matrix      "given": the task's; "pairs": counted on samples with given and verified labels, and smoothed;
                "anchors": estimated after a warm-up, after which training starts again from scratch
    correction  "forward", or "backward": unbiased, but with high variance and unbounded below
    warm_up     with anchors: fraction of the run, or epochs if ≥ 1, that trains the estimating network
    percentile  with anchors: samples at or above it are skipped; 100 = take the most probable sample
    """

    presets: ClassVar = {
        "cifar10": lambda task: {"matrix": "given"},  # the paper supplies the exact matrix
        "clothing1m": lambda task: {"matrix": "pairs"},  # and here counts it
    }

    needs = frozenset({"transition matrix"})
    inverse: Tensor

    def __init__(
        self,
        task: Task,
        *,
        matrix: Matrix = "given",
        correction: Correction = "forward",
        warm_up: float = 1 / 3,
        percentile: float = 97,
    ) -> None:
        expect_name("matrix", matrix, get_args(Matrix))
        expect_name("correction", correction, get_args(Correction))
        if not 0 < percentile <= 100:
            raise ValueError(f"percentile is {percentile}; it must be above 0 and at most 100, usually 97")
        if matrix == "anchors" and 100 - percentile >= 100 / task.classes:
            log.warning(
                "with %d classes a percentile of %g skips all samples of a class; use 100",
                task.classes,
                percentile,
            )
        super().__init__(task, known_matrix(task, matrix), warm_up)
        self.matrix, self.correction, self.percentile = matrix, correction, percentile
        if correction == "backward":
            self.register_buffer("inverse", invert(self.transition))

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        super().begin_epoch(epoch, data)
        if self.correction == "backward":
            self.inverse.copy_(invert(self.transition))

    def estimate(self, data: Splits) -> Tensor:
        own = torch.cat([self.log_probs(b.inputs).double().exp() for b in data.in_order()])
        return anchors(gathered(own), self.percentile)

    def corrected_step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        log_probs = self.log_probs(batch.inputs)
        if self.correction == "forward":
            loss = forward_cross_entropy(log_probs, batch.label, self.transition).mean()
        else:
            loss = backward_cross_entropy(log_probs, batch.label, self.inverse).mean()
        self.descend(self.optimizer, loss)
        return StepResult({"loss": loss}, log_probs)


def known_matrix(task: Task, source: Matrix) -> Tensor | None:
    """The matrix, if it is known before training."""
    if source == "given":
        if task.transition is None:
            raise ValueError(
                "forward correction needs the noise's transition matrix and the task has none; pass transition= with "
                'the task, or choose matrix="anchors" (estimated after a warm-up) or "pairs" (counted on samples '
                "with given and verified labels)"
            )
        return check_transition(task.transition, task.classes)
    if source == "pairs":
        if task.pairs is None or not len(task.pairs[0]):
            raise ValueError(
                'matrix="pairs" needs samples with given and verified labels and the task has none; give '
                "clean samples the ids they have in the noisy set, ask for a number of clean samples, or choose "
                'matrix="anchors"'
            )
        return smooth(count(*task.pairs, task.classes), None)
    return None


def invert(matrix: Tensor) -> Tensor:
    """The inverse, unless the matrix is nearly singular."""
    condition = float(torch.linalg.cond(matrix.double()))
    if not condition < 1e6:
        raise ValueError(
            "backward correction needs the inverse of the transition matrix, and this one is nearly singular: its "
            f'condition number is {condition:.3g}; choose correction="forward"'
        )
    inverse: Tensor = torch.linalg.inv(matrix.double())
    return inverse.to(matrix.dtype)

"""Transition matrices, T[i, j] = P(given j | true i): where they come from, and the methods' common ground."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..batch import Batch, Inputs
from ..losses import cross_entropy
from ..method import OneNetwork, StepResult, Task
from ..schedule import first_epoch
from ..splits import Splits

STRENGTHS = [0.1 * 2**power for power in range(14)]  # pseudo-samples a row, from nearly none to about 800


class Corrected(OneNetwork):
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


def check_transition(matrix: Tensor, classes: int) -> Tensor:
    """The matrix, if it is one."""
    if matrix.shape != (classes, classes):
        raise ValueError(
            f"the transition matrix has the shape {tuple(matrix.shape)}; with {classes} classes it must be "
            f"{classes} × {classes}, rows true and columns given"
        )
    sums = matrix.double().sum(1)
    if bool((matrix < 0).any()) or bool(((sums - 1).abs() > 1e-3).any()):
        raise ValueError(
            f"the rows of the transition matrix sum to between {sums.min():.4g} and {sums.max():.4g} and its smallest "
            f"entry is {matrix.min():.4g}; each row must be probabilities that sum to 1: P(given | true), rows true"
        )
    return matrix


@torch.inference_mode()
def expected_counts(log_probs: Callable[[Inputs], Tensor], data: Splits, classes: int) -> Tensor:
    """(classes, classes) which labels a network trained on given ones expects the clean samples of each class to have
    been given: takes the place of counting where clean samples carry no given label."""
    expected = torch.zeros(classes, classes, dtype=torch.float64)
    for batch in data.in_order(data.drawn):
        expected.index_add_(0, batch.label.cpu(), log_probs(batch.inputs).double().exp().cpu())
    return expected


def deconvolved(joint: Tensor, confusion: Tensor, steps: int = 200) -> Tensor:
    """(…, true, given) shares of the true and the given label, from those of the predicted and the given one: a
    predictor with this confusion, P(predicted | true), would have seen them as `joint`. The most likely ones, by
    expectation maximisation; right as far as predictor and noise make their mistakes independently of each other."""
    joint = joint / joint.sum((-2, -1), keepdim=True)
    found = joint.clone()
    for _ in range(steps):
        expected = confusion.transpose(-2, -1) @ found
        found = found * (confusion @ (joint / expected.clamp_min(1e-12)))
    return found / found.sum((-2, -1), keepdim=True)


def count(given: Tensor, verified: Tensor, classes: int) -> Tensor:
    """(classes, classes) how often a verified label (row) goes with a given one (column)."""
    return torch.bincount(verified.cpu() * classes + given.cpu(), minlength=classes**2).view(classes, classes).double()


def smooth(counts: Tensor, strength: float | None) -> Tensor:
    """Counts as a transition matrix: to each row `strength` pseudo-samples are added that are spread as in the pooled
    matrix. None: as many as predict each counted sample best from all the others."""
    prior = pool(counts)
    strength = max(best_strength(counts) if strength is None else strength, 1e-6)  # an empty row is the pooled one
    return (counts + strength * prior) / (counts.sum(1, keepdim=True) + strength)


def best_strength(counts: Tensor) -> float:
    """The number of pseudo-samples with which each counted sample is predicted best from all the others."""
    prior = pool(counts)
    best: float = max(STRENGTHS, key=lambda tried: leave_one_out(counts, prior, tried))
    return best


def pool(counts: Tensor) -> Tensor:
    """What all classes together say of each: how many labels stay, and which classes the wrong ones fall on."""
    stay = (counts.diagonal().sum() + 1) / (counts.sum() + 2)
    wrong = counts.sum(0) - counts.diagonal() + 1
    others = wrong.repeat(len(counts), 1).fill_diagonal_(0)
    return (1 - stay) * others / others.sum(1, keepdim=True) + stay * torch.eye(len(counts), dtype=counts.dtype)


def leave_one_out(counts: Tensor, prior: Tensor, strength: float) -> float:
    """Log-likelihood of every counted sample under the matrix smoothed from all the others."""
    others = (counts - 1).clamp_min(0) + strength * prior
    totals = (counts.sum(1, keepdim=True) - 1).clamp_min(0) + strength
    return float((counts * (others / totals).log()).sum())


def anchors(probs: Tensor, percentile: float) -> Tensor:
    """Row i is the prediction for the sample that is most surely of class i. The few samples with the very highest
    probability are passed over, as they are often memorised: those at or above the percentile; at 100 none is."""
    rows = []
    for column in probs.T:
        if percentile < 100:
            limit = column.sort().values[math.ceil(percentile / 100 * (len(column) - 1))]
            column = torch.where(column < limit, column, 0)
        rows.append(probs[column.argmax()])
    matrix = torch.stack(rows)
    return matrix / matrix.sum(1, keepdim=True)

"""Transition matrices, T[i, j] = P(given j | true i): counted, smoothed, deconvolved, or read off anchor samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..data.batch import Inputs
from ..data.splits import Splits

STRENGTHS = [0.1 * 2**power for power in range(14)]  # pseudo-samples a row, from nearly none to about 800


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
    for batch in data.in_order(data.unbiased_clean):
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

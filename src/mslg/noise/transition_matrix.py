"""Transition matrices, T[i, j] = P(given j | true i): by counting, smoothing, deconvolution, or from anchor samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..data.batch import Inputs
from ..data.splits import Splits

STRENGTHS = [0.1 * 2**power for power in range(14)]  # pseudo-samples per row, from nearly none to about 800
MANY = 1e4  # samples, as which an estimate is pooled
OWN_COUNTS = 1.0  # nats by which few counts must be more likely than an estimate: chance prefers what was counted


def check_transition(matrix: Tensor, classes: int) -> Tensor:
    """Raise unless this is a (classes, classes) transition matrix; return it."""
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
    """(classes, classes) expected counts of (verified, given) labels, from a network trained on given labels: for clean
    samples without a given label."""
    expected = torch.zeros(classes, classes, dtype=torch.float64)
    for batch in data.in_order(data.unbiased_clean):
        expected.index_add_(0, batch.label.cpu(), log_probs(batch.inputs).double().exp().cpu())
    return expected


def deconvolved(joint: Tensor, confusion: Tensor, steps: int = 200) -> Tensor:
    """The joint distribution of true and given labels from that of predicted and given ones, by expectation
    maximization. Assumes that prediction errors and label noise are independent given the true label.

    Args:
        joint: (…, predicted, given) shares or counts.
        confusion: (…, true, predicted) P(predicted | true).
        steps: of expectation maximization.

    Returns:
        (…, true, given) shares.
    """
    joint = joint / joint.sum((-2, -1), keepdim=True)
    estimate, backwards = joint.clone(), confusion.transpose(-2, -1).contiguous()
    for _ in range(steps):
        expected = (backwards @ estimate).clamp_min_(1e-12)
        estimate.mul_(confusion @ torch.div(joint, expected, out=expected))
    return estimate / estimate.sum((-2, -1), keepdim=True)


def count(given: Tensor, verified: Tensor, classes: int) -> Tensor:
    """(classes, classes) counts of verified (rows) and given labels (columns)."""
    return torch.bincount(verified.cpu() * classes + given.cpu(), minlength=classes**2).view(classes, classes).double()


def smooth(counts: Tensor, strength: float | None) -> Tensor:
    """Counts as a transition matrix, with `strength` pseudo-samples per row distributed as in the pooled matrix; None
    chooses the strength by leave-one-out likelihood. With a strength, of any number of (…, classes, classes) counts."""
    prior = pool(counts)
    strength = max(best_strength(counts) if strength is None else strength, 1e-6)  # an empty row becomes the pooled one
    return (counts + strength * prior) / (counts.sum(-1, keepdim=True) + strength)


def best_strength(counts: Tensor) -> float:
    """The number of pseudo-samples with the highest leave-one-out likelihood."""
    prior = pool(counts)
    best: float = max(STRENGTHS, key=lambda strength: leave_one_out(counts, prior, strength))
    return best


def pool(counts: Tensor) -> Tensor:
    """The transition matrix of all classes together: the share of right labels, and the distribution of wrong ones."""
    right, same = counts.diagonal(dim1=-2, dim2=-1), torch.eye(counts.shape[-1], dtype=counts.dtype)
    stay = ((right.sum(-1) + 1) / (counts.sum((-2, -1)) + 2))[..., None, None]
    wrong = counts.sum(-2) - right + 1
    others = wrong.unsqueeze(-2) * (1 - same)
    return (1 - stay) * others / others.sum(-1, keepdim=True) + stay * same


def leave_one_out(counts: Tensor, prior: Tensor, strength: float) -> float:
    """Log-likelihood of every counted sample under the matrix smoothed from all the others."""
    others = (counts - 1).clamp_min(0) + strength * prior
    totals = (counts.sum(1, keepdim=True) - 1).clamp_min(0) + strength
    return float((counts * (others / totals).log()).sum())


def anchors(probs: Tensor, percentile: float) -> Tensor:
    """Row i is the prediction for the sample with the highest probability of class i below the percentile: those above
    are often memorized."""
    rows = []
    for column in probs.T:
        if percentile < 100:
            limit = column.sort().values[math.ceil(percentile / 100 * (len(column) - 1))]
            column = torch.where(column < limit, column, 0)
        rows.append(probs[column.argmax()])
    matrix = torch.stack(rows)
    return matrix / matrix.sum(1, keepdim=True)


def smoothed_by_best_prior(
    given: Tensor, verified: Tensor, classes: int, estimate: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A transition matrix counted on samples with both labels, smoothed towards the pooled counts, another estimate of
    the matrix, that estimate pooled, or a mean of two: whichever, and with whatever strength, best predicts each sample
    from the others.

    Returns:
        The (classes, classes) matrix; and for each sample (n, classes) the column of its given label, from the counts
        of all other samples.
    """
    counts = count(given, verified, classes)
    pooled = Prior(pool(counts), _pooled_without_each(counts, given, verified), OWN_COUNTS)
    priors = [pooled]
    if estimate is not None:
        others = [Prior(each, each.T[given]) for each in (estimate, pool(MANY * estimate))]
        priors += [*others, *(pooled.halfway(each) for each in others)]
    tried = [(prior, strength) for prior in priors for strength in STRENGTHS[3:]]
    columns = [_without_each(counts, prior.columns, strength, given, verified) for prior, strength in tried]
    likelihood = [float(column.gather(1, verified[:, None]).log().sum()) for column in columns]
    best = max(range(len(tried)), key=lambda place: likelihood[place] - tried[place][0].handicap)
    prior, strength = tried[best]
    return (counts + strength * prior.matrix) / (counts.sum(1, keepdim=True) + strength), columns[best]


class Prior(NamedTuple):
    """What counts are smoothed towards."""

    matrix: Tensor  # (classes, classes)
    columns: Tensor  # (n, classes) that of each sample's given label, where the sample is not counted
    handicap: float = 0.0  # in nats

    def halfway(self, other: Prior) -> Prior:
        """The mean of two."""
        matrix, columns = (self.matrix + other.matrix) / 2, (self.columns + other.columns) / 2
        return Prior(matrix, columns, (self.handicap + other.handicap) / 2)


def _without_each(counts: Tensor, prior: Tensor, strength: float, given: Tensor, verified: Tensor) -> Tensor:
    """T[·, given] of every sample, where the sample itself is not counted; `prior` is (n, classes), also per sample."""
    totals = counts.sum(1)
    columns = (counts.T[given] + strength * prior) / (totals + strength)
    each = torch.arange(len(given))
    own = (counts[verified, given] - 1 + strength * prior[each, verified]) / (totals[verified] - 1 + strength)
    columns[each, verified] = own
    return columns.clamp_min(1e-6)


def _pooled_without_each(counts: Tensor, given: Tensor, verified: Tensor) -> Tensor:
    """(n, classes) the pooled matrix's column of the given label of every sample, where the sample is not counted."""
    right = (given == verified).to(counts.dtype)
    stay = (counts.diagonal().sum() - right + 1) / (counts.sum() - 1 + 2)
    wrong = counts.sum(0) - counts.diagonal() + 1
    own, total = wrong[given] - (1 - right), wrong.sum() - (1 - right)
    columns = ((1 - stay) * own)[:, None] / (total[:, None] - wrong)
    columns[torch.arange(len(given)), given] = stay
    return columns

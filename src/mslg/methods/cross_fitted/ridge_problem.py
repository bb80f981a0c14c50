"""The samples that a ridge regression is fitted to, and its rounds of expectation maximisation (see ridge.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.distributed import averaged, ranks
from .kernel_features import BLOCK, ROWS, triangular_product

HELD_OUT = 2  # folds, whose given labels decide
LEAST_ROUNDS = 3
ROUNDS = 8  # of expectation maximisation, at most
SHARPNESS = torch.logspace(0, 7, 15, base=2.0, dtype=torch.float64)  # of scores as logits, tried at first
NEARBY = torch.logspace(-0.5, 0.5, 5, base=2.0, dtype=torch.float64)  # later, times the one before
MOST_LEVERAGE = 0.99
DECONVOLVED = 8  # steps of the first estimate; more follow the errors of the probabilities


class Outside(NamedTuple):
    """The samples outside a fold, which its solution is fitted to."""

    where: list[slice]
    label: Tensor  # (n,) given
    sharpened: Tensor  # where among these those are that the sharpness is fitted on,
    sharpened_at: Tensor  # and where among all samples

    @classmethod
    def of(cls, part: slice, label: Tensor, sharpened: Tensor) -> Outside:
        both = [slice(0, part.start), slice(part.stop, len(label))]
        where = [each for each in both if each.start < each.stop] or both[:1]
        chosen = torch.cat([sharpened[each] for each in where]).nonzero().flatten()
        at = torch.cat([torch.arange(each.start, each.stop) for each in where]).to(chosen.device)[chosen]
        return cls(where, torch.cat([label[each] for each in where]), chosen, at)


class Problem:
    """Samples to fit.

    Args:
        features: (n, features).
        label: (n,) given.
        fold: (n,) ascending.
        folds: their number.
        sharpened: (n,) whether the sharpness is fitted on it.
    """

    def __init__(self, features: Tensor, label: Tensor, fold: Tensor, folds: int, sharpened: Tensor) -> None:
        self.features, self._label = features, label
        self.samples = float(total(torch.tensor(float(len(features)), dtype=torch.float64, device=features.device)))
        self._parts = parts_of(fold, folds)
        self._outside = [Outside.of(part, label, sharpened) for part in self._parts]
        parts = [features[part] for part in self._parts]
        own = torch.stack(averaged([squares_of(part).double() for part in parts]))
        sums = torch.stack(averaged([column_sums(part) for part in parts]))
        self._squares, self._sums = own.sum(0) - own, sums.sum(0) - sums  # without each fold
        self._factored: dict[tuple[int, float, bool], tuple[Tensor, list[Tensor]]] = {}

    def tried(self, penalty: float, transition: Tensor, most: int = ROUNDS) -> tuple[float, int]:
        """The least loss of given labels in the first folds, and after how many rounds."""
        least, best = math.inf, min(LEAST_ROUNDS, most)
        for done, (solutions, offsets) in enumerate(self.rounds(HELD_OUT, penalty, most, transition), 1):
            if done >= min(LEAST_ROUNDS, most):
                logits = self.predict(solutions, offsets)
                loss = float(total(losses(logits, self._label[: logits.shape[1]], transition).sum()))
                if loss >= least:
                    break
                least, best = loss, done
        return least, best

    def predict(self, solutions: Tensor, offsets: Tensor) -> Tensor:
        """(classes, n) logits of the samples of as many folds, each by the solution without its fold."""
        parts = zip(self._parts, solutions.to(self.features), offsets, strict=False)
        scores = [(self.features[part] @ solution).double() + offset for part, solution, offset in parts]
        return torch.cat(scores).T.contiguous()

    def rounds(self, folds: int, penalty: float, count: int, transition: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """(folds, features, classes) solutions without each of the first folds and their (folds, classes) offsets,
        after each round; after the first, of given labels."""
        features, matrix, outside = self.features, transition, self._outside[:folds]
        transition, unit = transition.to(features), torch.eye(len(transition)).to(features)
        corrects = not torch.equal(transition, unit)  # otherwise labels stay what they are, and few scores are needed
        factor, leverage = self._factor(folds, penalty, whole=corrects)
        # Of each fold's samples outside it: (classes, n), as it is quicker where the last dimension is the long one.
        target = [unit[:, each.label] for each in outside]
        columns = [transition[:, each.label] for each in outside] if corrects else []
        sharpness = torch.ones(folds).to(factor)
        for number in range(count):
            if corrects or number == 0:
                counts = torch.stack([each.sum(1, dtype=torch.float64) for each in target])
                products = torch.stack([self._product(*pair) for pair in zip(target, outside, strict=True)])
                counts, products = averaged([counts, products.double()])
                shares = counts / counts.sum(1, keepdim=True)  # (folds, classes)
                products = products - shares[:, :, None] * self._sums[:folds, None]
                solutions = torch.cholesky_solve(products.mT, factor)  # (folds, features, classes)
                of_classes = shares.to(features)[:, :, None]
                fitted = zip(solutions.mT.to(features), target, outside, of_classes, leverage, strict=True)
                scores = [self._scores(*each, whole=corrects) for each in fitted]
            tried = SHARPNESS[:, None].expand(-1, folds) if number < 2 else NEARBY[:, None] * sharpness.cpu()
            known = [each[:, part.sharpened] if corrects else each for each, part in zip(scores, outside, strict=True)]
            sharpness = self._sharpness(known, tried.to(factor), matrix if number > 0 else unit.to(matrix))
            yield sharpness[:, None, None] * solutions, sharpness[:, None] * shares
            if corrects and number + 1 < count:
                probs = [(sharp * each).softmax(0) for sharp, each in zip(sharpness.to(features), scores, strict=True)]
                probs = probs if number else [deconvolved(each, transition) for each in probs]
                target = [normalised(each * column) for each, column in zip(probs, columns, strict=True)]

    def mean_leverage(self, penalty: float) -> float:
        """The mean leverage of samples in solutions that have seen them, of those that the sharpness is fitted on."""
        leverage = torch.cat(self._factor(len(self._squares), penalty, whole=False)[1]).double()
        sums = total(torch.stack([leverage.sum(), (leverage > 0).sum().double()]))
        return float(sums[0] / sums[1].clamp_min(1))

    def _product(self, target: Tensor, outside: Outside) -> Tensor:
        """(classes, features) of the (classes, n) targets of samples outside a fold and their features."""
        sizes = [each.stop - each.start for each in outside.where]
        parts = zip(target.split(sizes, 1), outside.where, strict=True)
        return torch.stack([part @ self.features[where] for part, where in parts]).sum(0)

    def _scores(
        self, solution: Tensor, target: Tensor, outside: Outside, shares: Tensor, leverage: Tensor, *, whole: bool
    ) -> Tensor:
        """(classes, n) scores of samples outside a fold, each by a solution without it: of all, or of those that the
        sharpness is fitted on."""
        if whole:
            scores = torch.cat([solution @ self.features[where].T for where in outside.where], 1)
        else:
            scores, target = solution @ self.features[outside.sharpened_at].T, target[:, outside.sharpened]
        return without_each(scores, target - shares, leverage).add_(shares)

    def _factor(self, folds: int, penalty: float, *, whole: bool) -> tuple[Tensor, list[Tensor]]:
        """Cholesky's factors without each of the first folds, and the leverages of the samples that are scored."""
        key = (folds, penalty, whole)
        if key not in self._factored:
            squares = self._squares[:folds]
            scale = penalty / 10 * squares.diagonal(dim1=1, dim2=2).sum(1)
            factor = torch.linalg.cholesky(squares + scale[:, None, None] * torch.eye(squares.shape[1]).to(squares))
            self._factored = {key: (factor, self._leverage(factor, whole=whole))}
        return self._factored[key]

    def _leverage(self, factor: Tensor, *, whole: bool) -> list[Tensor]:
        """By fold, (n,) how much the target of each sample outside it counts in its own score."""
        inverses = torch.linalg.solve_triangular(factor, torch.eye(factor.shape[1]).to(factor), upper=False)
        found = []
        for inverse, outside in zip(inverses, self._outside, strict=False):
            scored = outside.where if whole else [outside.sharpened_at]
            found.append(torch.cat([leverage_of(self.features[each], inverse) for each in scored]))
        return found

    def _sharpness(self, scores: list[Tensor], tried: Tensor, transition: Tensor) -> Tensor:
        """(folds,) of the (n, folds) factors tried, those with which scores, as logits, make given labels most likely
        through the transition matrix. `scores` are of the samples that the sharpness is fitted on."""
        loss = []
        for each, outside, factors in zip(scores, self._outside, tried.T, strict=False):
            logits = factors[:, None, None] * each.double()
            loss.append(losses(logits, outside.label[outside.sharpened], transition).sum(1))
        best = total(torch.stack(loss, 1)).argmin(0)
        return tried.gather(0, best[None])[0]


def parts_of(fold: Tensor, folds: int) -> list[slice]:
    """Where the samples of each fold are, which come one after the other."""
    ends = torch.bincount(fold, minlength=folds).cumsum(0).tolist()
    return [slice(start, end) for start, end in pairwise([0, *ends])]


def squares_of(rows: Tensor) -> Tensor:
    """(columns, columns) rows.T @ rows: its lower half, in blocks, and the other by symmetry."""
    lower = rows.new_zeros(rows.shape[1], rows.shape[1])
    for start in range(0, rows.shape[1], BLOCK):
        columns = slice(start, start + BLOCK)
        lower[columns, : start + BLOCK] = rows[:, columns].T @ rows[:, : start + BLOCK]
    return lower.tril() + lower.tril(-1).T


def column_sums(rows: Tensor) -> Tensor:
    """(columns,) in double precision: by parts, a tenth of the time."""
    return torch.stack([part.sum(0) for part in rows.split(ROWS)]).sum(0, dtype=torch.float64)


def leverage_of(features: Tensor, inverse: Tensor) -> Tensor:
    """(n,) how much each sample's own target counts in its score; `inverse` is that of Cholesky's factor of the
    features' squares, their mean over processes, and the penalty."""
    found, inverse = features.new_zeros(len(features)), inverse.to(features)
    for part, into in zip(features.split(ROWS), found.split(ROWS), strict=True):
        for _, spread in triangular_product(part, inverse):
            into += spread.square_().sum(1)
    return (found / ranks()).clamp_max(MOST_LEVERAGE)


def without_each(scores: Tensor, target: Tensor, leverage: Tensor) -> Tensor:
    """The score of each sample by a solution without it: one that has seen its label agrees with it."""
    return (scores - leverage * target) / (1 - leverage)


def deconvolved(given: Tensor, transition: Tensor) -> Tensor:
    """(…, classes, n) probabilities of true labels under which those of given ones are `given`, by expectation
    maximisation from an even start."""
    true = torch.full_like(given, 1 / len(transition))
    for _ in range(DECONVOLVED):
        true = true * (transition @ (given / (transition.T @ true).clamp_min_(1e-12)))
    return normalised(true)


def losses(logits: Tensor, label: Tensor, transition: Tensor) -> Tensor:
    """(…, n) the negative log-likelihood of given labels, of (…, classes, n) logits."""
    probs = (logits.softmax(-2) * transition[:, label]).sum(-2)
    return -probs.clamp_min(1e-12).log()


def normalised(rows: Tensor) -> Tensor:
    """(…, classes, n) probabilities."""
    return rows / rows.sum(-2, keepdim=True).clamp_min(1e-30)


def total(value: Tensor) -> Tensor:
    """The sum over all processes."""
    return averaged([value])[0] * ranks()

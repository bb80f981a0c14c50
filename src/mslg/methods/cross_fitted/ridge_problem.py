"""The samples that a ridge regression is fitted to, and its rounds of expectation maximisation (see ridge.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

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
        self.features, self._label, self._fold = features, label, fold
        self._sharpened = sharpened.nonzero().flatten()
        self.samples = float(total(torch.tensor(float(len(features)), dtype=torch.float64, device=features.device)))
        self._parts = parts_of(fold, folds)
        parts = [features[part] for part in self._parts]
        own = torch.stack(averaged([squares_of(part).double() for part in parts]))
        sums = torch.stack(averaged([column_sums(part) for part in parts]))
        self._squares, self._sums = own.sum(0) - own, sums.sum(0) - sums  # without each fold
        self._factored: dict[tuple[int, float, bool], tuple[Tensor, Tensor]] = {}

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
        features, label, matrix = self.features, self._label, transition
        transition, classes = transition.to(features), len(transition)
        unit = torch.eye(classes).to(features)
        corrects = not torch.equal(transition, unit)  # otherwise labels stay what they are, and few scores are needed
        scored: slice | Tensor = slice(None) if corrects else self._sharpened
        factor, leverage = self._factor(folds, penalty, scored)
        outside = torch.stack([self._fold != number for number in range(folds)])[:, None]  # (folds, 1, n)
        columns = transition[:, label]  # (classes, n): the last dimension is long, which is many times as fast
        target = unit[label].T * outside  # (folds, classes, n)
        sharpness = torch.ones(folds).to(factor)
        for number in range(count):
            if corrects or number == 0:
                products = (target.flatten(0, 1) @ features).double()
                counts, products = averaged([target.sum(2, dtype=torch.float64), products])
                shares = counts / counts.sum(1, keepdim=True)  # (folds, classes)
                products = products.view(folds, classes, -1) - shares[:, :, None] * self._sums[:folds, None]
                solutions = torch.cholesky_solve(products.mT, factor)  # (folds, features, classes)
                of_classes = shares.to(features)[:, :, None]
                scores = solutions.mT.flatten(0, 1).to(features) @ features[scored].T
                scores = scores.view(folds, classes, -1)
                scores = without_each(scores, target[:, :, scored] - of_classes, leverage).add_(of_classes)
            tried = SHARPNESS[:, None].expand(-1, folds) if number < 2 else NEARBY[:, None] * sharpness.cpu()
            known = scores[:, :, self._sharpened] if corrects else scores
            sharpness = self._sharpness(known, outside, tried.to(factor), matrix if number > 0 else unit.to(matrix))
            yield sharpness[:, None, None] * solutions, sharpness[:, None] * shares
            if corrects and number + 1 < count:
                probs = (sharpness.to(scores)[:, None, None] * scores).softmax(1)
                probs = probs if number else deconvolved(probs, transition)
                target = normalised(probs * columns) * outside

    def mean_leverage(self, penalty: float) -> float:
        """The mean leverage of samples in solutions that have seen them, of those that the sharpness is fitted on."""
        leverage = self._factor(len(self._squares), penalty, self._sharpened)[1]
        sums = total(torch.stack([leverage.double().sum(), (leverage > 0).double().sum()]))
        return float(sums[0] / sums[1].clamp_min(1))

    def _factor(self, folds: int, penalty: float, scored: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Cholesky's factors without each of the first folds, and the leverage of the samples that are scored."""
        key = (folds, penalty, isinstance(scored, slice))
        if key not in self._factored:
            squares = self._squares[:folds]
            scale = penalty / 10 * squares.diagonal(dim1=1, dim2=2).sum(1)
            factor = torch.linalg.cholesky(squares + scale[:, None, None] * torch.eye(squares.shape[1]).to(squares))
            self._factored = {key: (factor, self._leverage(factor, scored))}
        return self._factored[key]

    def _leverage(self, factor: Tensor, scored: slice | Tensor) -> Tensor:
        """(folds, 1, n) how much each sample's own target counts in its score by the solution without a fold, which is
        of no interest in the fold itself."""
        features = self.features[scored]
        parts = self._parts if isinstance(scored, slice) else parts_of(self._fold[scored], len(self._parts))
        found = features.new_zeros(len(factor), 1, len(features))
        unit = torch.eye(factor.shape[1]).to(factor)
        for number, inverse in enumerate(torch.linalg.solve_triangular(factor, unit, upper=False)):
            for other, part in enumerate(parts):
                if other != number:
                    found[number, 0, part] = leverage_of(features[part], inverse)
        return found

    def _sharpness(self, scores: Tensor, outside: Tensor, tried: Tensor, transition: Tensor) -> Tensor:
        """(folds,) of the (n, folds) factors tried, those with which scores, as logits, make given labels most likely
        through the transition matrix. `scores` are of the samples that the sharpness is fitted on."""
        some = self._sharpened
        loss = losses(tried[:, :, None, None] * scores.double(), self._label[some], transition)
        best = total((loss * outside[:, 0, some]).sum(2)).argmin(0)
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

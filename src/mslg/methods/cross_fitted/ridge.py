"""Ridge regression in closed form, of labels that it corrects itself by expectation maximisation:

    W      the solution of a ridge regression of q on features of the inputs
    p_j    softmax(s · W features_j), the sharpness s that makes the given labels most likely through T
    q_j    ∝ p_j T[·, given_j], which the next W is fitted to

One solution per fold, of the samples outside it, predicts the fold. The kind of features (the inputs themselves, or
random Fourier features of a Gaussian kernel: Rahimi and Recht 2007), the penalty and the number of rounds are those
with which given labels of samples that were not fitted are most likely, so no clean sample is needed to choose them.

It costs a small fraction of a network's training, and on features of a pretrained network, tables and small images it
predicts labels better than networks that are trained for as short as those of the first stages are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ...data.batch import Batch, Inputs
from ...runtime.distributed import averaged, ranks
from ...runtime.seeds import generator

COLUMNS = 1536  # of an input at most: the cost of a solution is cubic
VALUES = 2**26  # of inputs that are kept to be fitted; of more samples, some are left out
FOURIER = 384  # random Fourier features
NARROW = 512  # columns up to which they are tried
SQUARED_WIDTH = 1.0  # of their kernel, times half the mean squared distance of two samples
CHOSEN_ON = 2500  # samples that features, penalty and rounds are chosen on, about
PENALTIES = (1e-3, 1e-2, 3e-2)  # times a tenth of the features' sum of squares
HELD_OUT = 2  # folds, whose given labels decide
LEAST_ROUNDS = 3
ROUNDS = 6  # of expectation maximisation, at most
SHARPNESS = torch.logspace(0, 7, 15, base=2.0, dtype=torch.float64)  # of scores as logits, tried at first
NEARBY = torch.logspace(-0.5, 0.5, 5, base=2.0, dtype=torch.float64)  # later, times the one before
SHARPENED_ON = 500  # samples, about
DECONVOLVED = 8  # steps of the first estimate; more follow the errors of the probabilities
MANY_CLASSES = 200  # from which on none of this is done: its cost is quadratic in classes


class Ridge(NamedTuple):
    """A fitted regression. Empty if the inputs do not allow one."""

    mean: Tensor = torch.empty(0)  # (columns,) of the inputs
    scale: Tensor = torch.empty(0)  # ()
    frequencies: Tensor = torch.empty(0, 0)  # (columns, FOURIER / 2), or none: then the features are the inputs
    solutions: Tensor = torch.empty(0, 0, 0)  # (folds, features, classes), the sharpness in it
    offsets: Tensor = torch.empty(0, 0)  # (folds, classes)

    def __bool__(self) -> bool:
        return len(self.mean) > 0

    def predict(self, inputs: Inputs, fold: Tensor) -> Tensor:
        """(n, classes) log-probabilities of true labels, each by the solution without its fold."""
        rows = as_rows(inputs)
        assert rows is not None
        features = features_of((rows - self.mean.to(rows)) / self.scale.to(rows), self.frequencies)
        logits = self.offsets[fold].clone()
        for number, solution in enumerate(self.solutions):
            own = (fold == number).nonzero().flatten()
            logits[own] += features.index_select(0, own).double() @ solution
        return logits.log_softmax(1)

    def predict_all(self, batches: Iterable[Batch], fold: Tensor) -> Tensor:
        """(n, classes) the same of several batches, on the CPU; `fold` is of all samples of their source."""
        predicted = [self.predict(batch.inputs, fold[batch.index]).cpu() for batch in batches]
        return torch.cat(predicted) if predicted else torch.empty(0, self.offsets.shape[1])


class RidgeSamples:
    """The training samples of this process, as far as they are kept to be fitted.

    Args:
        samples: of all processes.
    """

    def __init__(self, samples: int) -> None:
        self._samples, self._usable = samples, True
        self._rows: list[Tensor] = []
        self._index: list[Tensor] = []

    def add(self, batch: Batch) -> None:
        """Keep the samples of a batch."""
        rows = as_rows(batch.inputs) if self._usable else None
        if rows is None:
            self._usable = False
            return
        every = -(-self._samples * rows.shape[1] // VALUES)
        kept = (batch.index % every == 0).nonzero().flatten()  # by index: several processes keep what one would
        self._rows.append(rows.index_select(0, kept))
        self._index.append(batch.index.index_select(0, kept))

    def kept(self) -> list[tuple[Tensor, Tensor]]:
        """Index and inputs of the samples, if all were kept."""
        whole = bool(self._rows) and self._samples * self._rows[0].shape[1] <= VALUES
        return list(zip(self._index, self._rows, strict=True)) if whole else []

    def fit(self, given: Tensor, fold: Tensor, transition: Tensor, seed: int) -> Ridge:
        """Fit the samples, each fold by the others. `given` and `fold` are of all samples of the source."""
        if not self._usable or not self._rows or len(transition) >= MANY_CLASSES:
            return Ridge()
        rows, index, folds = torch.cat(self._rows), torch.cat(self._index), int(fold.max()) + 1
        label, fold = given[index], fold[index]
        mean, scale = _location(rows)
        if not 0 < float(scale) < math.inf:
            return Ridge()
        rows = (rows - mean.to(rows)) / scale.to(rows)
        few = (index % max(1, self._samples // CHOSEN_ON) == 0).nonzero().flatten()
        kinds = [rows.new_empty(rows.shape[1], 0)]
        if rows.shape[1] <= NARROW:
            kinds.append(fourier(rows.shape[1], seed).to(rows))
        sharpened = index % max(1, self._samples // SHARPENED_ON) == 0

        def problem(kind: Tensor, chosen: Tensor | slice) -> Problem:
            features = features_of(rows[chosen], kind)
            return Problem(features, label[chosen], fold[chosen], folds, sharpened[chosen], transition)

        tried = []
        for kind in kinds:
            small = problem(kind, few)
            tried += [(*small.tried(penalty), penalty, kind) for penalty in PENALTIES]
        _, rounds, penalty, kind = min(tried, key=lambda each: each[0])
        whole = problem(kind, slice(None))
        fitted = [whole.rounds(number, penalty, rounds)[-1] for number in range(folds)]
        solutions, offsets = (torch.stack(each) for each in zip(*fitted, strict=True))
        return Ridge(mean, scale, kind, solutions, offsets)


class Problem:
    """Samples to fit.

    Args:
        features: (n, features).
        label: (n,) given.
        fold: (n,).
        folds: their number.
        sharpened: (n,) whether the sharpness is fitted on it.
        transition: (classes, classes).
    """

    def __init__(
        self, features: Tensor, label: Tensor, fold: Tensor, folds: int, sharpened: Tensor, transition: Tensor
    ) -> None:
        self._features, self._label, self._fold = features, label, fold
        self._sharpened, self._transition = sharpened, transition
        parts = [features[fold == number] for number in range(folds)]
        own = averaged([(part.T @ part).double() for part in parts])
        squares = torch.stack(own).sum(0)
        self._squares = [squares - each for each in own]

    def tried(self, penalty: float) -> tuple[float, int]:
        """The least loss of given labels in the first folds, and after how many rounds."""
        losses = torch.zeros(ROUNDS, dtype=torch.float64, device=self._features.device)
        for number in range(HELD_OUT):
            own = (self._fold == number).nonzero().flatten()
            features, label = self._features[own], self._label[own]
            for done, (solution, offset) in enumerate(self.rounds(number, penalty, ROUNDS)):
                losses[done] += _loss(_scores(features, solution) + offset, label, self._transition)
        losses = _total(losses)[LEAST_ROUNDS - 1 :]
        return float(losses.min()), int(losses.argmin()) + LEAST_ROUNDS

    def rounds(self, fold: int, penalty: float, count: int) -> list[tuple[Tensor, Tensor]]:
        """The solution without a fold and its offset, after each round; after the first, of given labels."""
        others = (self._fold != fold).nonzero().flatten()
        features, label = self._features[others], self._label[others]
        some = self._sharpened[others].nonzero().flatten()
        squares = self._squares[fold]
        factor = torch.linalg.cholesky(squares + penalty / 10 * squares.trace() * torch.eye(len(squares)).to(squares))
        unit = torch.eye(len(self._transition), dtype=torch.float64, device=label.device)
        sums = averaged([features.sum(0, dtype=torch.float64)])[0]
        columns, target, found = self._transition.T[label], unit[label], []
        sharpness = torch.ones((), dtype=torch.float64)
        for number in range(count):
            counts, products = averaged([target.sum(0), (features.T @ target.to(features)).double()])
            shares = counts / counts.sum()
            solution = torch.cholesky_solve(products - sums[:, None] * shares, factor)
            scores = _scores(features, solution) + shares
            tried = SHARPNESS if number < 2 else NEARBY * sharpness
            sharpness = _sharpness(scores[some], label[some], self._transition if number else unit, tried)
            found.append((sharpness * solution, sharpness * shares))
            if number + 1 < count:
                probs = (sharpness * scores).softmax(1)
                probs = probs if number else deconvolved_rows(probs, self._transition)
                target = _normalised(probs * columns)
        return found


def as_rows(inputs: Inputs) -> Tensor | None:
    """(n, columns) inputs as vectors, if they are tensors of not too many floating-point numbers."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return None
    rows = inputs.flatten(1)
    return rows if 0 < rows.shape[1] <= COLUMNS else None


def features_of(rows: Tensor, frequencies: Tensor) -> Tensor:
    """The rows and a constant; with frequencies, their random Fourier features."""
    if not frequencies.shape[1]:
        return torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
    angles = rows @ frequencies.to(rows)
    return torch.cat([angles.cos(), angles.sin()], 1)


def fourier(columns: int, seed: int) -> Tensor:
    """(columns, FOURIER / 2) frequencies of a Gaussian kernel on rows of unit variance."""
    random = torch.randn(columns, FOURIER // 2, generator=generator(seed, "fourier"), dtype=torch.float64)
    return random / math.sqrt(SQUARED_WIDTH * columns)


def deconvolved_rows(given: Tensor, transition: Tensor) -> Tensor:
    """(n, classes) probabilities of true labels under which those of given ones are (n, classes) `given`, by
    expectation maximisation from an even start."""
    true = torch.full_like(given, 1 / given.shape[1])
    for _ in range(DECONVOLVED):
        true = true * ((given / (true @ transition).clamp_min(1e-12)) @ transition.T)
    return _normalised(true)


def _location(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(columns,) mean and () standard deviation over all columns, of the rows of all processes."""
    count = _total(torch.tensor(float(len(rows)), dtype=torch.float64, device=rows.device))
    mean = _total(rows.sum(0, dtype=torch.float64)) / count
    squares = _total(((rows - mean.to(rows)) ** 2).sum(0, dtype=torch.float64))
    return mean, (squares.mean() / count).sqrt()


def _scores(features: Tensor, solution: Tensor) -> Tensor:
    return (features @ solution.to(features)).double()


def _sharpness(scores: Tensor, label: Tensor, transition: Tensor, tried: Tensor) -> Tensor:
    """() the factor with which scores, as logits, make given labels most likely through a transition matrix."""
    losses = torch.stack([_loss(factor * scores, label, transition) for factor in tried])
    return tried[int(_total(losses).argmin())]


def _loss(logits: Tensor, label: Tensor, transition: Tensor) -> Tensor:
    """The summed negative log-likelihood of given labels."""
    probs = (logits.softmax(1) * transition.T[label]).sum(1)
    return -probs.clamp_min(1e-12).log().sum()


def _normalised(rows: Tensor) -> Tensor:
    return rows / rows.sum(1, keepdim=True).clamp_min(1e-30)


def _total(value: Tensor) -> Tensor:
    """The sum over all processes."""
    return averaged([value])[0] * ranks()

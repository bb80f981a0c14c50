"""Ridge regression in closed form, of labels that it corrects itself by expectation maximisation:

    W      the solution of a ridge regression of q on features of the inputs
    p_j    softmax(s · W features_j), W without sample j, the sharpness s that makes given labels most likely through T
    q_j    ∝ p_j T[·, given_j], which the next W is fitted to

One solution per fold, of the samples outside it, predicts the fold. The kind of features (the inputs themselves, or
those of a Gaussian kernel by some of the samples: Williams and Seeger 2001), the penalty and the number of rounds are
those with which given labels of samples that were not fitted are most likely, so no clean sample is needed to choose
them.

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
from ...runtime.distributed import averaged, gathered, ranks

PRECISION = torch.float32  # of features and their products; solutions are found in float64
COLUMNS = 1536  # of an input at most: the cost of a solution is cubic
VALUES = 2**26  # of inputs that are kept to be fitted; of more samples, some are left out
LANDMARKS = 512  # samples whose kernels are the features, about
NARROW = 512  # columns up to which a kernel is tried
SQUARED_WIDTH = 1.0  # of the kernel, times half the mean squared distance of two samples
JITTER = 1e-4  # added to the kernel of a landmark with itself: copies would make the matrix singular
CHOSEN_ON = 2500  # samples that features, penalty and rounds are chosen on, about
PENALTIES = (1e-3, 1e-2, 3e-2)  # times a tenth of the features' sum of squares
HELD_OUT = 2  # folds, whose given labels decide
LEAST_ROUNDS = 3
ROUNDS = 8  # of expectation maximisation, at most
SHARPNESS = torch.logspace(0, 7, 15, base=2.0, dtype=torch.float64)  # of scores as logits, tried at first
NEARBY = torch.logspace(-0.5, 0.5, 5, base=2.0, dtype=torch.float64)  # later, times the one before
SHARPENED_ON = 500  # samples, about
MOST_LEVERAGE = 0.99
DECONVOLVED = 8  # steps of the first estimate; more follow the errors of the probabilities
MANY_CLASSES = 200  # from which on none of this is done: its cost is quadratic in classes


class Kernel(NamedTuple):
    """A Gaussian kernel by some samples: its features are a linear function of their kernels, and have the products
    that the kernel has between these samples."""

    landmarks: Tensor  # (landmarks, columns)
    whitening: Tensor  # (landmarks, landmarks)

    @classmethod
    def of(cls, landmarks: Tensor) -> Kernel:
        kernel = gaussian(landmarks, landmarks).double()
        lower = torch.linalg.cholesky(kernel + JITTER * torch.eye(len(kernel)).to(kernel))
        unit = torch.eye(len(kernel)).to(kernel)
        return cls(landmarks, torch.linalg.solve_triangular(lower, unit, upper=False).T.to(landmarks))

    def features(self, rows: Tensor) -> Tensor:
        """(n, landmarks)."""
        return gaussian(rows, self.landmarks) @ self.whitening.to(rows)


class Ridge(NamedTuple):
    """A fitted regression. Empty if the inputs do not allow one."""

    mean: Tensor = torch.empty(0)  # (columns,) of the inputs
    scale: Tensor = torch.empty(0)  # ()
    kernel: Kernel | None = None  # or the features are the inputs
    solutions: Tensor = torch.empty(0, 0, 0)  # (folds, features, classes), the sharpness in it
    offsets: Tensor = torch.empty(0, 0)  # (folds, classes)

    def __bool__(self) -> bool:
        return len(self.mean) > 0

    def predict(self, inputs: Inputs, fold: Tensor) -> Tensor:
        """(n, classes) log-probabilities of true labels, each by the solution without its fold."""
        rows = as_rows(inputs)
        assert rows is not None
        features = features_of((rows - self.mean.to(rows)) / self.scale.to(rows), self.kernel)
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

    def fit(self, given: Tensor, fold: Tensor, transition: Tensor) -> Ridge:
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
        kinds: list[Kernel | None] = [None]
        if rows.shape[1] <= NARROW:
            kinds.append(Kernel.of(_landmarks(rows, index, self._samples)))
        sharpened = index % max(1, self._samples // SHARPENED_ON) == 0

        def problem(kind: Kernel | None, chosen: Tensor | slice) -> Problem:
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
        leverage = leverage_of(features, factor)
        sharpness = torch.ones((), dtype=torch.float64)
        for number in range(count):
            counts, products = averaged([target.sum(0), (features.T @ target.to(features)).double()])
            shares = counts / counts.sum()
            solution = torch.cholesky_solve(products - sums[:, None] * shares, factor)
            scores = without_each(_scores(features, solution), target - shares, leverage) + shares
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
    rows = inputs.flatten(1).to(PRECISION)
    return rows if 0 < rows.shape[1] <= COLUMNS else None


def features_of(rows: Tensor, kernel: Kernel | None) -> Tensor:
    """The features by a kernel, or the rows and a constant."""
    return torch.cat([rows, rows.new_ones(len(rows), 1)], 1) if kernel is None else kernel.features(rows)


def gaussian(rows: Tensor, others: Tensor) -> Tensor:
    """(n, others) a Gaussian kernel on rows of unit variance."""
    return torch.cdist(rows, others).square().div(-2 * SQUARED_WIDTH * rows.shape[1]).exp()


def _landmarks(rows: Tensor, index: Tensor, samples: int) -> Tensor:
    """(landmarks, columns) some of the samples of all processes."""
    kept = (index % max(1, -(-samples // LANDMARKS)) == 0).nonzero().flatten()
    order = gathered(index[kept]).argsort()
    return gathered(rows[kept])[order]


def leverage_of(features: Tensor, factor: Tensor) -> Tensor:
    """(n, 1) how much each sample's own target counts in its score; `factor` is Cholesky's, of the features' squares,
    their mean over processes, and the penalty."""
    spread = torch.linalg.solve_triangular(factor.to(features), features.T, upper=False)
    leverage: Tensor = spread.square().sum(0) / ranks()
    return leverage.clamp_max(MOST_LEVERAGE).double().unsqueeze(1)


def without_each(scores: Tensor, target: Tensor, leverage: Tensor) -> Tensor:
    """(n, classes) the score of each sample by a solution without it: one that has seen its label agrees with it."""
    return (scores - leverage * target) / (1 - leverage)


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

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
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ...data.batch import Batch, Inputs
from ...runtime.distributed import averaged, gathered, ranks
from ...runtime.precision import full_precision

PRECISION = torch.float32  # of features and their products; solutions are found in float64
COLUMNS = 1536  # of an input at most: the cost of a solution is cubic
VALUES = 2**26  # of inputs that are kept to be fitted; of more samples, some are left out
LANDMARKS = 256  # samples whose kernels are the features, about
NARROW = 512  # columns up to which a kernel is tried
SQUARED_WIDTH = 1.0  # of the kernel, times half the mean squared distance of two samples
JITTER = 1e-4  # added to the kernel of a landmark with itself: copies would make the matrix singular
CHOSEN_ON = 2500  # samples that features, penalty and rounds are chosen on, about
PENALTIES = (1e-2, 1e-3, 3e-2)  # times a tenth of the features' sum of squares; by the first, features are chosen
HELD_OUT = 2  # folds, whose given labels decide
LEAST_ROUNDS = 3
ROUNDS = 8  # of expectation maximisation, at most
SHARPNESS = torch.logspace(0, 7, 15, base=2.0, dtype=torch.float64)  # of scores as logits, tried at first
NEARBY = torch.logspace(-0.5, 0.5, 5, base=2.0, dtype=torch.float64)  # later, times the one before
SHARPENED_ON = 500  # samples, about
MOST_LEVERAGE = 0.99
ROWS = 2048  # that features are computed of at once: what is in between stays in the cache
BLOCK = 128  # columns of a product with a triangular matrix that are computed at once, without the zeros above them
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
        whitening, found = self.whitening.to(rows), rows.new_empty(len(rows), len(self.landmarks))
        for part, into in zip(rows.split(ROWS), found.split(ROWS), strict=True):
            for columns, product in triangular_product(gaussian(part, self.landmarks), whitening.T):
                into[:, columns] = product
        return found


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
        with full_precision(rows.device):
            return self._predict((rows - self.mean.to(rows)) / self.scale.to(rows), fold)

    def _predict(self, rows: Tensor, fold: Tensor) -> Tensor:
        features = features_of(rows, self.kernel)
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
        self._predicted: list[tuple[Tensor, Tensor]] = []

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

    def predicted(self) -> list[tuple[Tensor, Tensor]]:
        """Index and (n, classes) predictions of all samples, if all were fitted."""
        whole = bool(self._rows) and self._samples * self._rows[0].shape[1] <= VALUES
        return self._predicted if whole else []

    def fit(self, given: Tensor, fold: Tensor, transition: Tensor) -> Ridge:
        """Fit the samples, each fold by the others. `given` and `fold` are of all samples of the source."""
        if not self._usable or not self._rows or len(transition) >= MANY_CLASSES:
            return Ridge()
        with full_precision(transition.device):
            return self._fit(given, fold, transition)

    def _fit(self, given: Tensor, fold: Tensor, transition: Tensor) -> Ridge:
        index, folds = torch.cat(self._index), int(fold.max()) + 1
        order = fold[index].argsort(stable=True)
        rows, index = torch.cat(self._rows).index_select(0, order), index[order]
        label, fold = given[index], fold[index]
        mean, scale = _location(rows)
        if not 0 < float(scale) < math.inf:
            return Ridge()
        rows.sub_(mean.to(rows)).div_(scale.to(rows))
        few = (index % max(1, self._samples // CHOSEN_ON) == 0).nonzero().flatten()
        kinds: list[Kernel | None] = [None]
        if rows.shape[1] <= NARROW:
            kinds.append(Kernel.of(_landmarks(rows, index, self._samples)))
        sharpened = index % max(1, self._samples // SHARPENED_ON) == 0

        def problem(kind: Kernel | None, chosen: Tensor | slice) -> Problem:
            features = features_of(rows[chosen], kind)
            return Problem(features, label[chosen], fold[chosen], folds, sharpened[chosen], transition)

        small = [problem(kind, few) for kind in kinds]
        tried = [(*each.tried(PENALTIES[0]), PENALTIES[0], number) for number, each in enumerate(small)]
        best = min(tried)[-1]
        for penalty in PENALTIES[1:]:
            tried.append((*small[best].tried(penalty), penalty, best))
            if tried[-1] < min(tried[:-1]):
                break  # a larger one cannot be better too
        _, rounds, penalty, best = min(tried)
        kind = kinds[best]
        whole = small[best] if len(few) == len(rows) else problem(kind, slice(None))
        *_, (solutions, offsets) = whole.rounds(folds, penalty, rounds)
        self._predicted = [(index, whole.predict(solutions, offsets).log_softmax(0).T)]
        return Ridge(mean, scale, kind, solutions, offsets)


class Problem:
    """Samples to fit.

    Args:
        features: (n, features).
        label: (n,) given.
        fold: (n,) ascending.
        folds: their number.
        sharpened: (n,) whether the sharpness is fitted on it.
        transition: (classes, classes).
    """

    def __init__(
        self, features: Tensor, label: Tensor, fold: Tensor, folds: int, sharpened: Tensor, transition: Tensor
    ) -> None:
        self._features, self._label, self._fold = features, label, fold
        self._sharpened, self._transition = sharpened.nonzero().flatten(), transition
        ends = torch.bincount(fold, minlength=folds).cumsum(0).tolist()
        self._parts = [slice(start, end) for start, end in pairwise([0, *ends])]
        parts = [features[part] for part in self._parts]
        own = torch.stack(averaged([(part.T @ part).double() for part in parts]))
        sums = torch.stack(averaged([column_sums(part) for part in parts]))
        self._squares, self._sums = own.sum(0) - own, sums.sum(0) - sums  # without each fold

    def tried(self, penalty: float) -> tuple[float, int]:
        """The least loss of given labels in the first folds, and after how many rounds."""
        least, best = math.inf, LEAST_ROUNDS
        for done, (solutions, offsets) in enumerate(self.rounds(HELD_OUT, penalty, ROUNDS), 1):
            if done >= LEAST_ROUNDS:
                logits = self.predict(solutions, offsets)
                loss = float(_total(_losses(logits, self._label[: logits.shape[1]], self._transition).sum()))
                if loss >= least:
                    break
                least, best = loss, done
        return least, best

    def predict(self, solutions: Tensor, offsets: Tensor) -> Tensor:
        """(classes, n) logits of the samples of as many folds, each by the solution without its fold."""
        parts = zip(self._parts, solutions.to(self._features), offsets, strict=False)
        scores = [(self._features[part] @ solution).double() + offset for part, solution, offset in parts]
        return torch.cat(scores).T.contiguous()

    def rounds(self, folds: int, penalty: float, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(folds, features, classes) solutions without each of the first folds and their (folds, classes) offsets,
        after each round; after the first, of given labels."""
        features, label, transition = self._features, self._label, self._transition.to(self._features)
        squares, classes = self._squares[:folds], len(transition)
        scale = penalty / 10 * squares.diagonal(dim1=1, dim2=2).sum(1)
        factor = torch.linalg.cholesky(squares + scale[:, None, None] * torch.eye(squares.shape[1]).to(squares))
        leverage = self._leverage(factor)
        outside = torch.stack([self._fold != number for number in range(folds)])[:, None]  # (folds, 1, n)
        columns = transition[:, label]  # (classes, n): the last dimension is long, which is many times as fast
        target = torch.eye(classes).to(features)[label].T * outside  # (folds, classes, n)
        sharpness = torch.ones(folds).to(squares)
        for number in range(count):
            products = (target.flatten(0, 1) @ features).double()
            counts, products = averaged([target.sum(2, dtype=torch.float64), products])
            shares = counts / counts.sum(1, keepdim=True)  # (folds, classes)
            products = products.view(folds, classes, -1) - shares[:, :, None] * self._sums[:folds, None]
            solutions = torch.cholesky_solve(products.mT, factor)  # (folds, features, classes)
            of_classes = shares.to(features)[:, :, None]
            scores = (solutions.mT.flatten(0, 1).to(features) @ features.T).view_as(target)
            scores = without_each(scores, target - of_classes, leverage).add_(of_classes)
            tried = SHARPNESS[:, None].expand(-1, folds) if number < 2 else NEARBY[:, None] * sharpness.cpu()
            sharpness = self._sharpness(scores, outside, tried.to(squares), number > 0)
            yield sharpness[:, None, None] * solutions, sharpness[:, None] * shares
            if number + 1 < count:
                probs = (sharpness.to(scores)[:, None, None] * scores).softmax(1)
                probs = probs if number else deconvolved(probs, transition)
                target = _normalised(probs * columns) * outside

    def _leverage(self, factor: Tensor) -> Tensor:
        """(folds, 1, n) how much each sample's own target counts in its score by the solution without a fold, which is
        of no interest in the fold itself."""
        found = self._features.new_zeros(len(factor), 1, len(self._features))
        unit = torch.eye(factor.shape[1]).to(factor)
        for number, inverse in enumerate(torch.linalg.solve_triangular(factor, unit, upper=False)):
            for other, part in enumerate(self._parts):
                if other != number:
                    found[number, 0, part] = leverage_of(self._features[part], inverse)
        return found

    def _sharpness(self, scores: Tensor, outside: Tensor, tried: Tensor, noisy: bool) -> Tensor:
        """(folds,) of the (n, folds) factors tried, those with which scores, as logits, make given labels most likely
        through the transition matrix, in the first round as true labels."""
        some = self._sharpened
        unit = torch.eye(len(self._transition)).to(self._transition)
        logits = tried[:, :, None, None] * scores[:, :, some].double()
        losses = _losses(logits, self._label[some], self._transition if noisy else unit)
        best = _total((losses * outside[:, 0, some]).sum(2)).argmin(0)
        return tried.gather(0, best[None])[0]


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
    factor = -0.5 / (SQUARED_WIDTH * rows.shape[1])
    squares = torch.addmm(others.square().sum(1), rows, others.T, alpha=-2).add_(rows.square().sum(1, keepdim=True))
    return squares.clamp_min_(0).mul_(factor).exp_()


def triangular_product(rows: Tensor, lower: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some columns at a time, and these of the product of rows with the transpose of a lower triangular matrix."""
    for start in range(0, len(lower), BLOCK):
        columns = slice(start, start + BLOCK)
        yield columns, rows[:, : start + BLOCK] @ lower[columns, : start + BLOCK].T


def column_sums(rows: Tensor) -> Tensor:
    """(columns,) in double precision: by parts, a tenth of the time."""
    return torch.stack([part.sum(0) for part in rows.split(ROWS)]).sum(0, dtype=torch.float64)


def _landmarks(rows: Tensor, index: Tensor, samples: int) -> Tensor:
    """(landmarks, columns) some of the samples of all processes."""
    kept = (index % max(1, -(-samples // LANDMARKS)) == 0).nonzero().flatten()
    order = gathered(index[kept]).argsort()
    return gathered(rows[kept])[order]


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
    return _normalised(true)


def _location(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(columns,) mean and () standard deviation over all columns, of the rows of all processes."""
    count = _total(torch.tensor(float(len(rows)), dtype=torch.float64, device=rows.device))
    mean = _total(column_sums(rows)) / count
    squares = _total(sum((column_sums((part - mean.to(rows)).square_()) for part in rows.split(ROWS)), 0 * mean))
    return mean, (squares.mean() / count).sqrt()


def _losses(logits: Tensor, label: Tensor, transition: Tensor) -> Tensor:
    """(…, n) the negative log-likelihood of given labels, of (…, classes, n) logits."""
    probs = (logits.softmax(-2) * transition[:, label]).sum(-2)
    return -probs.clamp_min(1e-12).log()


def _normalised(rows: Tensor) -> Tensor:
    """(…, classes, n) probabilities."""
    return rows / rows.sum(-2, keepdim=True).clamp_min(1e-30)


def _total(value: Tensor) -> Tensor:
    """The sum over all processes."""
    return averaged([value])[0] * ranks()

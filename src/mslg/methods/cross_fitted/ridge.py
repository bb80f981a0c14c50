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
from ...runtime.precision import full_precision
from .kernel_features import LANDMARKS, ROWS, Kernel, features_of, landmarks_of
from .ridge_problem import ROUNDS, Problem, column_sums, total

PRECISION = torch.float32  # of features and their products; solutions are found in float64
COLUMNS = 1536  # of an input at most: the cost of a solution is cubic
VALUES = 2**26  # of inputs that are kept to be fitted; of more samples, some are left out
NARROW = 512  # columns up to which a kernel is tried
CHOSEN_ON = 2500  # samples that features, penalty and rounds are chosen on, about
PENALTIES = (1e-2, 1e-3, 3e-2)  # times a tenth of the features' sum of squares; by the first, features are chosen
SHARPENED_ON = 500  # samples, about
FEWEST = 10  # that there must be to choose by
MANY_CLASSES = 200  # from which on none of this is done: its cost is quadratic in classes


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
            features, logits = self._features(rows), self.offsets[fold].clone()
            for number, solution in enumerate(self.solutions):
                own = (fold == number).nonzero().flatten()
                logits[own] += features.index_select(0, own).double() @ solution
        return logits.log_softmax(1)

    def predict_together(self, inputs: Inputs) -> Tensor:
        """(n, classes) log-probabilities of samples that no solution has seen: the mean of all."""
        rows = as_rows(inputs)
        assert rows is not None
        with full_precision(rows.device):
            return self.mean_of(self._features(rows))

    def mean_of(self, features: Tensor) -> Tensor:
        """(n, classes) what `predict_together` says of samples with these features."""
        logits = torch.stack([(features @ solution.to(features)).double() for solution in self.solutions])
        logits += self.offsets[:, None]
        return logits.log_softmax(2).logsumexp(0) - math.log(len(logits))

    def _features(self, rows: Tensor) -> Tensor:
        return features_of((rows - self.mean.to(rows)) / self.scale.to(rows), self.kernel)

    def predict_all(self, batches: Iterable[Batch], fold: Tensor) -> Tensor:
        """(n, classes) what `predict` says of several batches, on the CPU; `fold` is of all samples of their source."""
        predicted = [self.predict(batch.inputs, fold[batch.index]).cpu() for batch in batches]
        return torch.cat(predicted) if predicted else torch.empty(0, self.offsets.shape[1])


class Standardised(NamedTuple):
    """Samples as they are fitted, ordered by their fold."""

    rows: Tensor  # (n, columns)
    sample: Tensor  # (n,) index of these
    mean: Tensor
    scale: Tensor


class RidgeSamples:
    """The samples of this process, as far as they are kept to be fitted.

    Args:
        label: given ones, of all samples of the source.
        fold: of all samples of the source.
        samples: that will be added by all processes.
        like: another regression, whose features are used; otherwise they are chosen.
    """

    def __init__(self, label: Tensor, fold: Tensor, samples: int, like: Ridge | None = None) -> None:
        self._label, self._fold, self._samples = label, fold, samples
        self._folds = int(fold.max()) + 1
        self._added: list[tuple[Tensor, Tensor]] = []  # rows and index
        self._fitted: Standardised | None = None
        self._usable, self._thinned = True, 1  # every how many are kept
        self._like = like
        self._kinds: list[Kernel | None] = [None if like is None else like.kernel]
        self._chosen: tuple[float, int] | None = None  # penalty and kind, by the last fit
        self._problems: dict[tuple[int, bool], Problem] = {}  # by kind of features, and whether of all samples
        self._predicted: list[tuple[Tensor, Tensor]] = []

    def add(self, batch: Batch) -> None:
        """Keep the samples of a batch."""
        rows = as_rows(batch.inputs) if self._usable else None
        if rows is None:
            self._usable = False
            return
        self._thinned, index = -(-self._samples * rows.shape[1] // VALUES), batch.index
        if self._thinned > 1:
            kept = (index % self._thinned == 0).nonzero().flatten()  # by index, as one process would
            rows, index = rows.index_select(0, kept), index.index_select(0, kept)
        self._added.append((rows, index))

    def predicted(self) -> list[tuple[Tensor, Tensor]]:
        """Index and (n, classes) predictions of all samples by the last fit, if all were fitted."""
        whole = self._fitted is not None and self._samples * self._fitted.rows.shape[1] <= VALUES
        return self._predicted if whole else []

    def mean_leverage(self) -> float:
        """How much a sample's own label counts, on average, in what is predicted for it by a fit that has seen it."""
        assert self._chosen is not None
        penalty, kind = self._chosen
        return self._problem(kind, whole=True).mean_leverage(penalty)

    def predicted_together(self, other: Ridge) -> list[tuple[Tensor, Tensor]]:
        """What `predicted` is, by another regression with these features, which has seen none of the samples."""
        if not self.predicted() or self._chosen is None or self._fitted is None:
            return []
        features = self._problem(self._chosen[1], whole=True).features
        return [(self._fitted.sample, other.mean_of(features))]

    def fit(self, transition: Tensor, *, rounds: int = ROUNDS) -> Ridge:
        """Fit the samples, each fold by the others, in at most this many rounds. Through the unit matrix, given labels
        are what is predicted; more rounds only make the sharpness finer. Features are computed once for all fits."""
        if not self._usable or len(transition) >= MANY_CLASSES:
            return Ridge()
        with full_precision(transition.device):
            return self._fit(transition, rounds)

    def _fit(self, transition: Tensor, most: int) -> Ridge:
        if self._fitted is None and not self._standardise():
            return Ridge()
        assert self._fitted is not None
        _, index, mean, scale = self._fitted
        _, rounds, penalty, best = self._best(transition, most)
        whole = self._problem(best, whole=True)
        penalty *= self._problem(best, whole=False).samples / whole.samples  # the same, not the same per sample
        self._chosen = penalty, best
        *_, (solutions, offsets) = whole.rounds(self._folds, penalty, rounds, transition)
        self._predicted = [(index, whole.predict(solutions, offsets).log_softmax(0).T)]
        return Ridge(mean, scale, self._kinds[best], solutions, offsets)

    def _best(self, transition: Tensor, most: int) -> tuple[float, int, float, int]:
        """The least loss of given labels, and the rounds, the penalty and the kind of features that have it."""
        small = [self._problem(number, whole=False) for number in range(len(self._kinds))]

        def tried_with(penalty: float, kind: int) -> tuple[float, int, float, int]:
            return (*small[kind].tried(penalty, transition, most), penalty, kind)

        tried = [tried_with(PENALTIES[0], kind) for kind in range(len(small))]
        best = min(tried)[-1]
        for penalty in PENALTIES[1:]:
            tried.append(tried_with(penalty, best))
            if tried[-1] < min(tried[:-1]):
                break  # a larger one cannot be better too
        return min(tried)

    def _standardise(self) -> bool:
        """Order and scale the samples, and find landmarks; False if that is not possible."""
        if not self._added:
            return False
        rows, index = (torch.cat(parts) for parts in zip(*self._added, strict=True))
        order = self._fold[index].argsort(stable=True)
        rows, index = rows.index_select(0, order), index[order]
        mean, scale = _location(rows) if self._like is None else (self._like.mean, self._like.scale)
        if not 0 < float(scale) < math.inf:
            return False
        rows.sub_(mean.to(rows)).div_(scale.to(rows))
        self._fitted, self._added = Standardised(rows, index, mean, scale), []
        chosen = torch.tensor(float(len(self._some(CHOSEN_ON))), dtype=torch.float64, device=rows.device)
        if float(total(chosen)) < FEWEST:
            return False  # the index of these samples has a pattern
        if self._like is None and rows.shape[1] <= NARROW:
            landmarks = landmarks_of(rows, index, self._every(LANDMARKS, up=True))
            if len(landmarks):
                self._kinds.append(Kernel.of(landmarks))
        return True

    def _every(self, count: int, *, up: bool = False) -> int:
        """Every how many by index are about this many samples, of all processes."""
        kept = self._samples // self._thinned
        return self._thinned * max(1, -(-kept // count) if up else kept // count)

    def _some(self, count: int) -> Tensor:
        """Where about this many of the samples are, as far as they are of this process."""
        assert self._fitted is not None
        return (self._fitted.sample % self._every(count) == 0).nonzero().flatten()

    def _problem(self, kind: int, *, whole: bool) -> Problem:
        """All samples, or some to choose by."""
        assert self._fitted is not None
        whole = whole and self._every(CHOSEN_ON) > self._thinned  # otherwise these are all, for every process
        if (kind, whole) not in self._problems:
            rows, index = self._fitted.rows, self._fitted.sample
            sharpened = index % self._every(SHARPENED_ON) == 0
            if not whole:
                chosen = self._some(CHOSEN_ON)
                rows, index, sharpened = rows[chosen], index[chosen], sharpened[chosen]
            features = features_of(rows, self._kinds[kind])
            self._problems[kind, whole] = Problem(
                features, self._label[index], self._fold[index], self._folds, sharpened
            )
        return self._problems[kind, whole]


def as_rows(inputs: Inputs) -> Tensor | None:
    """(n, columns) inputs as vectors, if they are tensors of not too many floating-point numbers."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return None
    rows = inputs.flatten(1).to(PRECISION)
    return rows if 0 < rows.shape[1] <= COLUMNS else None


def are_vectors(inputs: Inputs) -> bool:
    """Whether inputs are rows of numbers, such as features or a table's columns."""
    return isinstance(inputs, Tensor) and inputs.dim() == 2 and as_rows(inputs) is not None


def _location(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(columns,) mean and () standard deviation over all columns, of the rows of all processes."""
    count = total(torch.tensor(float(len(rows)), dtype=torch.float64, device=rows.device))
    mean = total(column_sums(rows)) / count
    squares = total(sum((column_sums((part - mean.to(rows)).square_()) for part in rows.split(ROWS)), 0 * mean))
    return mean, (squares.mean() / count).sqrt()

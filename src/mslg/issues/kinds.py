"""Kinds of problem other than a wrong label.

ambiguous        two classes fit: nearly as near to samples of one class as to those of another, compared with the
                 verified samples. Judged only with features and enough verified samples: by probabilities it cannot be,
                 as a model that has never seen such a sample is sure of one of the two classes; and only if mixtures
                 made of two verified samples are recognised, which they are not where classes overlap anyway
no class         farther from its neighbours, or from the verified samples, than any verified sample is: those do belong
                 to a class. Judged only with features and enough verified samples
near duplicate   hardly any distance to another sample, compared with that between other neighbours; needs features
confusable pair  two classes that many samples share the posterior of: no other class has much of it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..data.sample_table import pieces_of
from .neighbors import MOST_EXACT, Array, directions, nearest_neighbors

# benchmarks/problem_kinds.py measures what these find (docs/results/any-model.md).
UNDECIDED = 0.6  # of a score that is 1 where two classes have all of the posterior in equal parts
AMBIGUOUS = 0.02  # the part of the verified samples that may be called ambiguous
RECOGNISED, MIXTURES = 0.5, 200  # the part of so many mixtures of two verified samples that must be recognised
NEAR = 3  # samples of each class whose distance counts
FEWEST = 100  # verified samples that it takes to judge who is a stranger
NEIGHBORS, VERIFIED = 10, 3  # how many are looked at among all samples, and among the verified ones
DUPLICATE = 0.05  # of the median distance to the nearest neighbour
SHARE = 0.2  # of the samples of two classes that are ambiguous between them
MOST_PAIRS = 50
MOST_CLASSES = 1_000  # up to which distances to all of them are computed


@dataclass(frozen=True)
class ProblemKinds:
    """The kinds of problem of every sample, in the order of the data; what cannot be judged is None."""

    ambiguous: Array | None = None  # (samples,) above 1 where a sample is more ambiguous than nearly all verified ones
    no_class: Array | None = None  # (samples,) above 1 where a sample is farther off than any verified one
    duplicate_of: Array | None = None  # (samples,) position of the nearest sample, −1 where it is no duplicate
    pairs: tuple[tuple[int, int, float], ...] = ()  # confusable classes and their share
    recognised: float | None = None  # the part of mixtures of two verified samples that score as ambiguous

    @property
    def is_ambiguous(self) -> Array | None:
        """(samples,) whether two classes fit each: not where none does."""
        if self.ambiguous is None:
            return None
        found: Array = self.ambiguous > 1
        return found if self.is_no_class is None else found & ~self.is_no_class

    @property
    def is_no_class(self) -> Array | None:
        """(samples,) whether each belongs to no class."""
        return None if self.no_class is None else self.no_class > 1

    def names(self, flagged: Array) -> Array:
        """(samples,) the kind of each, where several apply the most consequential; empty where there is no problem."""
        found = np.full(len(flagged), "", dtype=object)
        if self.is_ambiguous is not None:
            found[self.is_ambiguous] = "ambiguous"
        found[flagged] = "wrong label"
        if self.duplicate_of is not None:
            found[self.duplicate_of >= 0] = "near duplicate"
        if self.is_no_class is not None:
            found[self.is_no_class] = "no class"
        return found

    def counts(self, given: Array) -> dict[str, int]:
        """How many there are of each kind, for the summary."""
        found = {}
        if self.is_ambiguous is not None:
            found["ambiguous"] = int(self.is_ambiguous.sum())
        if self.is_no_class is not None:
            found["no class"] = int(self.is_no_class.sum())
        if self.duplicate_of is not None:
            double = self.duplicate_of >= 0
            found["near duplicate"] = int(double.sum())
            found["near duplicate with another label"] = int((given[self.duplicate_of] != given)[double].sum())
        return found


def problem_kinds(two: Array, mass: Array, classes: int, features: Any, verified: Array) -> ProblemKinds:
    """Judge every sample.

    Args:
        two: (samples, 2) its two likeliest classes.
        mass: (samples, 2) their probabilities.
        classes: how many there are.
        features: (samples, …), or None.
        verified: positions of the verified samples.
    """
    pairs = _confusable(two, 2 * mass[:, 1] * mass.sum(1) > UNDECIDED, classes)
    rows = None if features is None else directions(features)
    neighbors = None if rows is None or len(two) < 3 else nearest_neighbors(rows, NEIGHBORS)
    if rows is None or neighbors is None:
        return ProblemKinds(pairs=pairs)
    nearest = neighbors.distance[:, 0]
    double = nearest < DUPLICATE * np.median(nearest)
    duplicate_of = np.where(double, neighbors.position[:, 0], -1)
    strange = ambiguous = recognised = None
    if len(verified) >= FEWEST:
        distances = neighbors.distance.mean(1), _to_verified(rows, verified)
        strange = np.max([each / each[verified].max() for each in distances], axis=0)
        ambiguous, recognised = _ambiguous(rows, two[:, 0], classes, verified)
    return ProblemKinds(ambiguous, strange, duplicate_of, pairs, recognised)


def _ambiguous(
    rows: Array, label: Array, classes: int, verified: Array
) -> tuple[Array, float] | tuple[None, float | None]:
    """(samples,) the distance ratio compared with the verified samples, None if it does not tell mixtures of two of
    them from single ones; and the part of such mixtures that it recognises."""
    ratio = distance_ratio(rows, label, classes)
    pair = np.random.default_rng(0).choice(verified, (10 * MIXTURES, 2))
    pair = pair[label[pair[:, 0]] != label[pair[:, 1]]][:MIXTURES]
    mixed = distance_ratio(rows, label, classes, directions(rows[pair].sum(1)), pair)
    if ratio is None or mixed is None or not len(mixed):
        return None, None
    limit = np.quantile(ratio[verified], 1 - AMBIGUOUS)
    recognised = float((mixed > limit).mean())
    return (ratio / limit, recognised) if recognised >= RECOGNISED else (None, recognised)


def distance_ratio(
    rows: Array, label: Array, classes: int, queries: Array | None = None, own: Array | None = None
) -> Array | None:
    """(queries,) the distance to the nearest class as a fraction of that to the second nearest one, by the mean
    distance to the nearest samples of a class; 1: as near to both. None if there are too many samples or classes.

    Args:
        rows: (samples, …) directions.
        label: (samples,) their classes.
        classes: how many there are.
        queries: (queries, …) directions; the samples themselves by default.
        own: (queries, any number) positions of samples that do not count; by default each itself.
    """
    members = [np.flatnonzero(label == number) for number in range(classes)]
    members = [each for each in members if len(each) > NEAR]
    if len(rows) > MOST_EXACT or len(members) < 2 or len(members) > MOST_CLASSES:
        return None
    if queries is None or own is None:
        queries, own = rows, np.arange(len(rows))[:, None]
    found = np.empty(len(queries))
    for piece in pieces_of(torch.arange(len(queries)), len(rows)):
        cosine = torch.from_numpy(queries[piece.numpy()] @ rows.T)
        cosine.scatter_(1, torch.from_numpy(own[piece.numpy()]), -torch.inf)
        near = [cosine[:, each].topk(NEAR, dim=1).values for each in map(torch.from_numpy, members)]
        distance = (1 - torch.stack(near, 1)).clamp_min(0).sqrt().mean(2)
        best = distance.topk(2, dim=1, largest=False).values
        found[piece.numpy()] = (best[:, 0] / best[:, 1].clamp_min(1e-9)).numpy()
    return found


def _to_verified(rows: Array, verified: Array) -> Array:
    """(samples,) mean distance to the nearest other verified samples."""
    others, found = torch.from_numpy(rows[verified]), np.empty(len(rows))
    own = np.full(len(rows), -1)
    own[verified] = np.arange(len(verified))
    for piece in pieces_of(torch.arange(len(rows)), len(verified)):
        cosine = torch.from_numpy(rows[piece.numpy()]) @ others.t()
        at = torch.from_numpy(own[piece.numpy()])
        cosine[(at >= 0).nonzero().flatten(), at[at >= 0]] = -np.inf
        found[piece.numpy()] = (1 - cosine.topk(VERIFIED, dim=1).values).clamp_min(0).sqrt().mean(1).numpy()
    return found


def _confusable(order: Array, both: Array, classes: int) -> tuple[tuple[int, int, float], ...]:
    """Pairs of classes by the share of ambiguous samples among those that are most likely one of the two. `order` holds
    the two likeliest classes of every sample."""
    pair = np.sort(order[both], axis=1).astype(np.int64)
    cells, counts = np.unique(pair[:, 0] * classes + pair[:, 1], return_counts=True)
    size = np.bincount(order[:, 0], minlength=classes)
    share = counts / np.maximum(size[cells // classes] + size[cells % classes], 1)
    ranked = sorted(zip(cells.tolist(), share.tolist(), strict=True), key=lambda each: -each[1])
    return tuple((cell // classes, cell % classes, part) for cell, part in ranked[:MOST_PAIRS] if part >= SHARE)


def confusable_pairs(kinds: ProblemKinds, classes: Sequence[str]) -> list[dict[str, Any]]:
    """The pairs by name, for the summary."""
    return [{"classes": [classes[one], classes[two]], "share": share} for one, two, share in kinds.pairs]


def kind_columns(kinds: ProblemKinds, positions: Array, flagged: Array, ids: Sequence[str]) -> dict[str, Any]:
    """Columns of the table of labels for the samples at these positions, of which some are flagged."""
    whole = np.zeros(len(ids), dtype=bool)
    whole[positions] = flagged
    columns: dict[str, Any] = {"kind": kinds.names(whole)[positions]}
    if kinds.ambiguous is not None:
        columns["ambiguous"] = kinds.ambiguous[positions]
    if kinds.no_class is not None:
        columns["no_class"] = kinds.no_class[positions]
    if kinds.duplicate_of is not None:
        columns["duplicate_of"] = np.array(
            [None if place < 0 else ids[place] for place in kinds.duplicate_of[positions].tolist()], dtype=object
        )
    return columns

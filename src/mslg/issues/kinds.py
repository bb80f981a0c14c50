"""Kinds of problem other than a wrong label.

ambiguous        two classes fit: both have much of the posterior, and hardly any other has
no class         farther from its neighbours, or from the verified samples, than any verified sample is: those do belong
                 to a class. Judged only with features and enough verified samples
near duplicate   hardly any distance to another sample, compared with that between other neighbours; needs features
confusable pair  two classes between which many samples are ambiguous
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.sample_table import pieces_of
from .neighbors import Array, directions, nearest_neighbors

# benchmarks/problem_kinds.py measures what these find (docs/results/any-model.md).
AMBIGUOUS = 0.6  # of a score that is 1 where two classes have all of the posterior in equal parts
FEWEST = 100  # verified samples that it takes to judge who is a stranger
NEIGHBORS, VERIFIED = 10, 3  # how many are looked at among all samples, and among the verified ones
DUPLICATE = 0.05  # of the median distance to the nearest neighbour
SHARE = 0.2  # of the samples of two classes that are ambiguous between them
MOST_PAIRS = 50


@dataclass(frozen=True)
class ProblemKinds:
    """The kinds of problem of every sample, in the order of the data; what cannot be judged is None."""

    ambiguous: Array  # (samples,) 0 to 1
    is_ambiguous: Array
    no_class: Array | None = None  # (samples,) above 1 where a sample is farther off than any verified one
    duplicate_of: Array | None = None  # (samples,) position of the nearest sample, −1 where it is no duplicate
    pairs: tuple[tuple[int, int, float], ...] = ()  # confusable classes and their share

    @property
    def is_no_class(self) -> Array | None:
        """(samples,) whether each belongs to no class."""
        return None if self.no_class is None else self.no_class > 1

    def names(self, flagged: Array) -> Array:
        """(samples,) the kind of each, where several apply the most consequential; empty where there is no problem."""
        found = np.full(len(self.ambiguous), "", dtype=object)
        found[flagged] = "wrong label"
        found[self.is_ambiguous] = "ambiguous"
        if self.duplicate_of is not None:
            found[self.duplicate_of >= 0] = "near duplicate"
        if self.is_no_class is not None:
            found[self.is_no_class] = "no class"
        return found

    def counts(self, given: Array) -> dict[str, int]:
        """How many there are of each kind, for the summary."""
        found = {"ambiguous": int(self.is_ambiguous.sum())}
        if self.is_no_class is not None:
            found["no class"] = int(self.is_no_class.sum())
        if self.duplicate_of is not None:
            double = self.duplicate_of >= 0
            found["near duplicate"] = int(double.sum())
            found["near duplicate with another label"] = int((given[self.duplicate_of] != given)[double].sum())
        return found


def problem_kinds(
    posterior: Callable[[Tensor], Tensor], samples: int, classes: int, features: Any, verified: Array
) -> ProblemKinds:
    """Judge every sample.

    Args:
        posterior: (positions, classes) of the samples at some positions.
        samples: how many there are.
        classes: likewise.
        features: (samples, …), or None.
        verified: positions of the verified samples.
    """
    best = [posterior(piece).topk(2, dim=1) for piece in pieces_of(torch.arange(samples), classes)]
    value, order = (torch.cat([each[part] for each in best]).numpy() for part in (0, 1))
    ambiguous = 2 * value[:, 1] * value.sum(1)
    is_ambiguous = ambiguous > AMBIGUOUS
    pairs = _confusable(order, is_ambiguous, classes)
    rows = None if features is None else directions(features)
    neighbors = None if rows is None or samples < 3 else nearest_neighbors(rows, NEIGHBORS)
    if rows is None or neighbors is None:
        return ProblemKinds(ambiguous, is_ambiguous, pairs=pairs)
    nearest = neighbors.distance[:, 0]
    double = nearest < DUPLICATE * np.median(nearest)
    duplicate_of = np.where(double, neighbors.position[:, 0], -1)
    strange = None
    if len(verified) >= FEWEST:
        distances = neighbors.distance.mean(1), _to_verified(rows, verified)
        strange = np.max([each / each[verified].max() for each in distances], axis=0)
    return ProblemKinds(ambiguous, is_ambiguous, strange, duplicate_of, pairs)


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
    whole = np.zeros(len(kinds.ambiguous), dtype=bool)
    whole[positions] = flagged
    columns: dict[str, Any] = {"kind": kinds.names(whole)[positions], "ambiguous": kinds.ambiguous[positions]}
    if kinds.no_class is not None:
        columns["no_class"] = kinds.no_class[positions]
    if kinds.duplicate_of is not None:
        columns["duplicate_of"] = np.array(
            [None if place < 0 else ids[place] for place in kinds.duplicate_of[positions].tolist()], dtype=object
        )
    return columns

"""An order of training samples in which the given classes are equally frequent.

Each batch has equal shares of the classes, and no sample twice: per-sample tables are written once per batch. A class
with fewer samples than its share of a batch therefore gets as many places as it has samples, and the others share the
rest. Samples of a class follow each other in a shuffled circle, so all are visited before one is repeated.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def balanced_order(label: Tensor, sizes: list[int], generator: torch.Generator) -> Tensor:
    """Positions in `label` for consecutive batches.

    Args:
        label: (samples,) given labels.
        sizes: of the batches; none is larger than the number of samples.
        generator: of every random choice.

    Returns:
        (sum of the sizes,) positions.
    """
    shuffled = torch.randperm(len(label), generator=generator)
    present, members = label.unique(return_counts=True)
    places = torch.from_numpy(_places(members.numpy(), sizes))  # (batches, classes)
    kinds = torch.arange(len(present)).repeat(len(sizes)).repeat_interleave(places.flatten())
    by_kind = kinds.argsort(stable=True)
    visits = places.sum(0)  # of each class in the epoch
    number = torch.empty_like(kinds)  # how often the class has been visited before
    number[by_kind] = torch.arange(len(kinds)) - (visits.cumsum(0) - visits).repeat_interleave(visits)
    circles = shuffled[label[shuffled].argsort(stable=True)]  # the samples of each class, one class after the other
    first = members.cumsum(0) - members
    order = circles[first[kinds] + number % members[kinds]]
    # Until here a batch is sorted by class: shuffle it, so that its micro-batches are alike.
    within = torch.randperm(len(order), generator=generator)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return order[within[batch[within].argsort(stable=True)]]


def _places(members: NDArray[np.int64], sizes: list[int]) -> NDArray[np.int64]:
    """(batches, classes) numbers of places: equal shares, at most one place per sample. Fractions carry over."""
    shares = {size: _shares(members, size) for size in set(sizes)}
    places = np.empty((len(sizes), len(members)), dtype=np.int64)
    owed = np.zeros(len(members))
    for row, size in zip(places, sizes, strict=True):
        owed += shares[size]
        row[:] = np.minimum(np.floor(owed + 1e-9).clip(0), members)
        while (lacking := size - int(row.sum())) != 0:
            able = (row < members) if lacking > 0 else (row > 0)
            urgency = np.where(able, (owed - row) * np.sign(lacking), -np.inf)
            chosen = np.argsort(-urgency, kind="stable")[: min(abs(lacking), int(able.sum()))]
            row[chosen] += np.sign(lacking)
        owed -= row
    return places


def _shares(members: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """`size` places over the classes as equally as possible, none with more places than members."""
    shares = np.zeros(len(members))
    left = float(size)
    for position, kind in enumerate(np.argsort(members, kind="stable")):
        shares[kind] = min(float(members[kind]), left / (len(members) - position))
        left -= shares[kind]
    return shares

"""From a transition matrix to labels: exact counts, or one draw a sample. Most kinds of noise are one such matrix."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .arguments import Array
from .corruption import Corruption, whole


def corrupt_by(
    transition: Array, label: Tensor, generator: np.random.Generator, *, exact: bool = True, fill: bool = False
) -> Corruption:
    """New labels by the matrix (rows true, columns given): by exact counts, or each sample drawn on its own."""
    if fill and not exact:
        raise ValueError(
            "fill=True makes up for rounding down, and drawn labels are not rounded; leave one of them out"
        )
    given = (
        by_counts(transition, label.numpy(), generator, fill=fill)
        if exact
        else drawn(transition[label.numpy()], generator)
    )
    return Corruption(torch.as_tensor(given), label, torch.as_tensor(transition))


def by_counts(transition: Array, label: Array, generator: np.random.Generator, *, fill: bool = False) -> Array:
    """⌊n_i·T_ij⌋ random samples of class i go to each class j ≠ i.

    In small classes the rounding down adds up; `fill` sends the samples missing to round(n_i·(1 − T_ii)) to random
    classes of those the matrix allows.
    """
    given = label.copy()
    for own, row in enumerate(transition):
        members = generator.permutation(np.flatnonzero(label == own))
        others = [other for other in range(len(row)) if other != own]
        moved = 0
        for other in others:
            count = whole(len(members) * row[other])
            given[members[moved : moved + count]] = other
            moved += count
        if fill:
            wanted = round(len(members) * sum(row[other] for other in others))
            chosen = generator.permutation([other for other in others if row[other] > 0])
            given[members[moved:wanted]] = chosen[: wanted - moved]
    return given


def drawn(rows: Array, generator: np.random.Generator) -> Array:
    """One class for each row of probabilities."""
    edges = rows.cumsum(1)
    # The last edge is left out: everything above the others is the last class, whatever the rounding of the sum.
    found: Array = (generator.random(len(rows))[:, None] >= edges[:, :-1]).sum(1)
    return found

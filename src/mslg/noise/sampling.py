"""From a transition matrix to labels: by exact counts, or by a draw per sample."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .corruption import Corruption, floor_count
from .read_arrays import Array


def corrupt_by(
    transition: Array, label: Tensor, generator: np.random.Generator, *, exact: bool = True, fill: bool = False
) -> Corruption:
    """Corrupt labels by a transition matrix (rows true, columns given): by exact counts, or a draw per sample."""
    if fill and not exact:
        raise ValueError("fill=True compensates for rounded counts, and exact=False does not round; remove one of them")
    given = (
        by_counts(transition, label.numpy(), generator, fill=fill)
        if exact
        else draw_classes(transition[label.numpy()], generator)
    )
    return Corruption(torch.as_tensor(given), label, torch.as_tensor(transition))


def by_counts(transition: Array, label: Array, generator: np.random.Generator, *, fill: bool = False) -> Array:
    """⌊n_i·T_ij⌋ random samples of class i go to each class j ≠ i. To reach round(n_i·(1 − T_ii)), `fill` sends samples
    to random classes among those that the matrix allows."""
    given = label.copy()
    for own, row in enumerate(transition):
        members = generator.permutation(np.flatnonzero(label == own))
        others = [other for other in range(len(row)) if other != own]
        moved = 0
        for other in others:
            count = floor_count(len(members) * row[other])
            given[members[moved : moved + count]] = other
            moved += count
        if fill:
            wanted = round(len(members) * sum(row[other] for other in others))
            chosen = generator.permutation([other for other in others if row[other] > 0])
            given[members[moved:wanted]] = chosen[: wanted - moved]
    return given


def draw_classes(rows: Array, generator: np.random.Generator) -> Array:
    """Draw a class per row of probabilities."""
    edges = rows.cumsum(1)
    # The last edge is left out: everything above the others is the last class, despite rounding of the sum.
    drawn: Array = (generator.random(len(rows))[:, None] >= edges[:, :-1]).sum(1)
    return drawn

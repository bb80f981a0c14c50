"""Uniform noise: a wrong label is any other class, all equally likely."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .corruption import Corruption, check_rate


def uniform(
    label: Tensor, rate: float, generator: np.random.Generator, *, classes: int, fill: bool = False
) -> Corruption:
    """Exact counts, own class excluded, as in the paper: ⌊n_i·rate/(C−1)⌋ samples of class i go to each class j ≠ i.

    In small classes the rounding down adds up; `fill` sends the samples missing to round(n_i·rate) to random classes.
    """
    check_rate(rate)
    given = label.numpy().copy()
    for own in range(classes):
        members = generator.permutation(np.flatnonzero(label.numpy() == own))
        # The tiny addend undoes float errors such as 0.6·5000/9 = 333.33 written as 2999.999/9.
        each = int(len(members) * rate / (classes - 1) + 1e-9)
        for place, other in enumerate(c for c in range(classes) if c != own):
            given[members[place * each : (place + 1) * each]] = other
        if fill:
            moved, wanted = each * (classes - 1), round(len(members) * rate)
            others = generator.permutation([c for c in range(classes) if c != own])
            given[members[moved:wanted]] = others[: wanted - moved]
    nominal = torch.full((classes, classes), rate / (classes - 1), dtype=torch.float64)
    return Corruption(torch.as_tensor(given), label, nominal.fill_diagonal_(1 - rate))

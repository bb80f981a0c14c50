"""Pair noise: a wrong label is always the next class, as between look-alikes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .corruption import Corruption, check_rate


def pair(label: Tensor, rate: float, generator: np.random.Generator, *, classes: int) -> Corruption:
    """⌊n_i·rate⌋ samples of class i go to class i+1 (the last to the first)."""
    check_rate(rate)
    given = label.numpy().copy()
    for own in range(classes):
        members = generator.permutation(np.flatnonzero(label.numpy() == own))
        given[members[: int(len(members) * rate + 1e-9)]] = (own + 1) % classes
    eye = torch.eye(classes, dtype=torch.float64)
    return Corruption(torch.as_tensor(given), label, (1 - rate) * eye + rate * eye.roll(1, dims=1))

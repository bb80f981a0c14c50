"""Pair noise: a wrong label is always the next class, as between look-alikes."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from .corruption import Corruption, check
from .sampling import corrupt_by


def pair(label: Tensor, rate: float, generator: np.random.Generator, *, classes: int, exact: bool = True) -> Corruption:
    """⌊n_i·rate⌋ samples of class i go to class i+1 (the last to the first); `exact=False` draws each on its own."""
    check(label, rate, classes)
    eye = np.eye(classes)
    return corrupt_by((1 - rate) * eye + rate * np.roll(eye, 1, axis=1), label, generator, exact=exact)

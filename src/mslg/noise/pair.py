"""Pair noise: a wrong label is always the next class."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from .corruption import Corruption, check
from .sampling import corrupt_by


def pair(label: Tensor, rate: float, generator: np.random.Generator, *, classes: int, exact: bool = True) -> Corruption:
    """Move ⌊n_i·rate⌋ samples of class i to class i+1 (of the last class to the first).

    Args:
        label: (samples,) int64 labels to corrupt.
        rate: the share of labels to change, from 0 to 1.
        generator: of all random draws.
        classes: the number of classes.
        exact: whether counts are exact; otherwise each sample is drawn independently.

    Returns:
        The corrupted labels and the transition matrix.
    """
    check(label, rate, classes)
    eye = np.eye(classes)
    return corrupt_by((1 - rate) * eye + rate * np.roll(eye, 1, axis=1), label, generator, exact=exact)

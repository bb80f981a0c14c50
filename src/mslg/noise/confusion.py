"""Confusion noise: wrong labels are distributed like the mistakes of a classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from .corruption import Corruption, check
from .read_arrays import read_matrix
from .sampling import corrupt_by


def confusion(
    label: Tensor,
    rate: float,
    generator: np.random.Generator,
    *,
    classes: int,
    confusion: Any = None,
    exact: bool = True,
) -> Corruption:
    """Move labels by the off-diagonal entries of a confusion matrix, each row normalized to the rate. A class without
    mistakes stays clean, so the overall rate is lower then.

    Args:
        label: (samples,) int64 labels to corrupt.
        rate: the share of labels to change, from 0 to 1.
        generator: of all random draws.
        classes: the number of classes.
        confusion: (classes, classes) counts (rows true, columns predicted), as an array or the path of a file.
        exact: whether counts are exact, rounded down; otherwise each sample is drawn independently.

    Returns:
        The corrupted labels and the transition matrix.
    """
    check(label, rate, classes)
    if confusion is None:
        raise ValueError(
            f"confusion noise needs a confusion matrix: pass confusion, {classes}×{classes} counts (rows true, columns "
            "predicted) from a classifier on held-out samples, as an array or the path of an .npy or .csv file"
        )
    mistakes = read_matrix(confusion, classes, "the confusion matrix")
    np.fill_diagonal(mistakes, 0)
    totals = mistakes.sum(1, keepdims=True)
    nominal = rate * np.divide(mistakes, totals, out=np.zeros_like(mistakes), where=totals > 0)
    np.fill_diagonal(nominal, np.where(totals[:, 0] > 0, 1 - rate, 1))
    return corrupt_by(nominal, label, generator, exact=exact)

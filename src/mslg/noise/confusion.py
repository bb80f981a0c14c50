"""Confusion noise: wrong labels are spread as a classifier spreads its mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from .arguments import read_matrix
from .corruption import Corruption, check
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
    """The off-diagonal counts of a confusion matrix (rows true, columns predicted), each row normalised to the rate.

    A class without mistakes stays clean, so the overall rate is then lower. Counts are exact, rounded down, unless
    `exact=False`, which draws each sample on its own.
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

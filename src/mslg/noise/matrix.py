"""Matrix noise: any transition matrix, rows true, columns given."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from .corruption import Corruption, check
from .read_arrays import Array, read_matrix
from .sampling import corrupt_by


def matrix(
    label: Tensor,
    rate: float | None,
    generator: np.random.Generator,
    *,
    classes: int,
    transition: Any = None,
    exact: bool = True,
) -> Corruption:
    """Move ⌊n_i·T_ij⌋ samples of class i to class j.

    Args:
        label: (samples,) int64 labels to corrupt.
        rate: the share of labels to change, by scaling all off-diagonal entries; None to use the matrix unchanged.
        generator: of all random draws.
        classes: the number of classes.
        transition: (classes, classes) matrix T (rows true, columns given), as an array or the path of a file.
        exact: whether counts are exact; otherwise each sample is drawn from its row.

    Returns:
        The corrupted labels and the transition matrix.
    """
    check(label, 0.0 if rate is None else rate, classes)
    if transition is None:
        raise ValueError(
            f"matrix noise needs the transition matrix: pass transition, {classes} rows that sum to 1 (rows true, "
            "columns given), as an array or the path of an .npy or .csv file"
        )
    nominal = read_matrix(transition, classes, "the transition matrix")
    sums = nominal.sum(1)
    if np.abs(sums - 1).max() > 1e-6:
        row = int(np.abs(sums - 1).argmax())
        raise ValueError(f"row {row} of the transition matrix sums to {sums[row]:.6g}; every row must sum to 1")
    if rate is not None:
        nominal = _scaled(nominal, rate, label.numpy())
    return corrupt_by(nominal, label, generator, exact=exact)


def _scaled(transition: Array, rate: float, label: Array) -> Array:
    """The matrix scaled so that the expected share of wrong labels, given the class frequencies, is the rate."""
    shares = np.bincount(label, minlength=len(transition)) / max(len(label), 1)
    wrong = 1 - transition.diagonal()
    mean = float(shares @ wrong)
    if rate > 0 and mean <= 0:
        raise ValueError(f"the transition matrix changes no label here, so it cannot be scaled to a rate of {rate}")
    factor = rate / mean if rate > 0 else 0.0
    if factor * wrong.max() > 1 + 1e-9:
        most = mean / wrong.max()
        raise ValueError(
            f"a rate of {rate} would empty class {int(wrong.argmax())} of this transition matrix; it allows at most "
            f"{most:.4g} when all rows are scaled by the same factor"
        )
    scaled = transition * factor
    np.fill_diagonal(scaled, 0)
    np.fill_diagonal(scaled, np.clip(1 - scaled.sum(1), 0, 1))
    return scaled

"""The clean samples that `fit` is told of, checked: they are steered by, so a mistake here spoils everything."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import column_or_1d

from ..registry import unknown

Array = np.ndarray[Any, Any]


def checked_mask(mask: Any, rows: int) -> Array:
    """(rows,) which rows are clean."""
    found: Array = column_or_1d(mask)
    if len(found) != rows:
        raise ValueError(f"clean_mask has {len(found)} entries for {rows} rows of X; give one a row")
    if found.dtype != bool:
        raise ValueError(f"clean_mask holds {found.dtype}; give True for each row whose label is verified, or False")
    clean = int(found.sum())
    refuse_few(clean, "clean_mask marks")
    if rows - clean < 2:
        raise ValueError(f"clean_mask leaves {rows - clean} of {rows} rows to learn from; at least 2 are needed")
    return found


def checked_labels(labels: Any, rows: int, classes: Array) -> Array:
    """(clean rows,) the class number of each."""
    found: Array = column_or_1d(labels)
    if len(found) != rows:
        raise ValueError(f"clean has {rows} rows but {len(found)} labels; give one a row")
    strange = found[~np.isin(found, classes)]
    if len(strange):
        raise unknown("label in clean", strange[0], [str(each) for each in classes])
    refuse_few(rows, "clean has")
    codes: Array = np.searchsorted(classes, found)
    return codes


def refuse_few(rows: int, what: str) -> None:
    """Batch norm cannot take one sample alone, and one shows nothing."""
    if rows < 2:
        raise ValueError(
            f"{what} {rows} rows; at least 2 verified samples are needed, better some of each class. In "
            "cross-validation every training part needs them: use fewer folds, or stratify"
        )


def refuse_shared(rows: Array, clean: Array) -> None:
    """A sample that is trained on with its given label must not be among those that correct it."""
    places = {row.tobytes(): place for place, row in enumerate(_comparable(clean))}
    for place, row in enumerate(_comparable(rows)):
        if (key := row.tobytes()) in places:
            raise ValueError(
                f"row {places[key]} of clean is row {place} of X; the clean samples must not be part of X: leave such "
                "rows out of X, or give all samples in X and y and mark the verified ones with clean_mask= (there, "
                "equal rows may be different samples)"
            )


def _comparable(rows: Array) -> Array:
    return np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # −0 becomes 0

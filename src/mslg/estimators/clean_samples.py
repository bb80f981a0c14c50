"""Validation of the clean samples passed to `fit`: they guide the training, so a mistake in them spoils the result."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import column_or_1d

from ..registry import unknown

Array = np.ndarray[Any, Any]


def checked_mask(mask: Any, rows: int) -> Array:
    """The validated mask, (rows,) bool."""
    found: Array = column_or_1d(mask)
    if len(found) != rows:
        raise ValueError(f"clean_mask has {len(found)} entries for {rows} rows of X; pass one per row")
    if found.dtype != bool:
        raise ValueError(f"clean_mask holds {found.dtype}; pass bools, True for each row whose label is verified")
    clean = int(found.sum())
    refuse_few(clean, "clean_mask marks")
    if rows - clean < 2:
        raise ValueError(f"clean_mask leaves {rows - clean} of {rows} rows to learn from; leave at least 2 unmarked")
    return found


def checked_labels(labels: Any, rows: int, classes: Array) -> Array:
    """The class index of each clean row, (clean rows,)."""
    found: Array = column_or_1d(labels)
    if len(found) != rows:
        raise ValueError(f"clean has {rows} rows but {len(found)} labels; pass one per row")
    strange = found[~np.isin(found, classes)]
    if len(strange):
        raise unknown("label in clean", strange[0], [str(each) for each in classes])
    refuse_few(rows, "clean has")
    codes: Array = np.searchsorted(classes, found)
    return codes


def refuse_few(rows: int, what: str) -> None:
    """Raise for fewer than two: batch norm needs two, and one sample shows nothing."""
    if rows < 2:
        raise ValueError(
            f"{what} {rows} rows; at least 2 verified samples are needed, preferably some of each class. In "
            "cross-validation every training fold needs them: use fewer folds, or stratify"
        )


def refuse_shared(rows: Array, clean: Array) -> None:
    """Raise if a row of X is also a clean one: its given label would be corrected by itself."""
    places = {row.tobytes(): place for place, row in enumerate(_comparable(clean))}
    for place, row in enumerate(_comparable(rows)):
        if (key := row.tobytes()) in places:
            raise ValueError(
                f"row {places[key]} of clean is row {place} of X; clean samples must not be in X: remove these "
                "rows from X, or pass all samples in X and y and mark the verified ones with clean_mask= (which allows "
                "equal rows)"
            )


def _comparable(rows: Array) -> Array:
    return np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # −0 becomes 0

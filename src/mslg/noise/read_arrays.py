"""Matrices, probabilities and features from arrays, tensors, lists or files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..data.batch import Inputs, leaves
from ..data.readers.array_files import read_npy, read_npz
from ..runtime.files import regular

Array = np.ndarray[Any, np.dtype[Any]]


def read_array(value: Any, what: str) -> Array:
    """Numbers from an array, a tensor, a nested list, or the path of an .npy or .csv file."""
    if isinstance(value, str | Path):
        value = _read_file(Path(value), what)
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{what}: values of type {array.dtype} must be numeric")
    if not np.isfinite(array).all():
        raise ValueError(f"{what} has NaN or infinite values; every entry must be a number")
    return array


def _read_file(path: Path, what: str) -> Array:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path} to read {what} from")
    try:
        if path.suffix == ".csv":
            table: Array = np.loadtxt(regular(path), delimiter=",", ndmin=2)
            return table
        if path.suffix != ".npz":
            return read_npy(path)
        arrays = read_npz(path)
    except (ValueError, EOFError) as error:
        raise ValueError(
            f"{path} cannot be read as {what} ({error}); pass an .npy or a .csv of plain numbers"
        ) from error
    raise ValueError(f"{path} contains several arrays ({', '.join(arrays)}); pass {what} as an .npy with one")


def read_matrix(value: Any, classes: int, what: str) -> Array:
    """A (classes, classes) matrix of non-negative float64 numbers."""
    matrix = read_array(value, what).astype(np.float64)
    if matrix.shape != (classes, classes):
        raise ValueError(f"{what} has the shape {matrix.shape}; {classes} classes need {(classes, classes)}")
    if (matrix < 0).any():
        raise ValueError(f"{what} has the entry {matrix.min()}; no entry may be negative")
    return matrix


def read_probabilities(value: Any, samples: int, classes: int) -> Array:
    """(samples, classes) rows that sum to 1. The dtype is kept, because ties depend on it."""
    what = "the probabilities"
    array = read_array(value, what)
    if array.shape != (samples, classes):
        raise ValueError(f"{what} have the shape {array.shape}; these labels need {(samples, classes)}")
    sums = array.sum(1, dtype=np.float64)
    wrong = np.flatnonzero((array < 0).any(1) | (np.abs(sums - 1) > 1e-3))
    if len(wrong):
        first = int(wrong[0])
        raise ValueError(
            f"{what} of sample {first} have the sum {sums[first]:.4g} and the minimum {array[first].min():.4g} "
            f"({len(wrong)} such samples); they must be non-negative and sum to 1: pass softmax outputs, not logits"
        )
    return array


def flat_rows(inputs: Inputs, samples: int, what: str = "the inputs") -> Array:
    """(samples, features) float32: all inputs of a sample, flattened and concatenated."""
    parts = leaves(inputs) if not isinstance(inputs, str | Path | np.ndarray | list) else []
    arrays = [part.detach().cpu().numpy() for part in parts] or [read_array(inputs, what)]
    for array in arrays:
        if len(array) != samples:
            raise ValueError(
                f"{what} have {len(array)} rows for {samples} labels; pass one per sample, in the same order"
            )
    rows: Array = np.concatenate([array.reshape(samples, -1).astype(np.float32) for array in arrays], axis=1)
    return rows

"""Predicted probabilities from files and objects: arrays, tables with a column per class, archives of several models.

.npy             (samples, classes), or (models, samples, classes)
.npz             such arrays, one per model; optionally `classes` and `id`
.csv, .parquet   a column per class, called like the class or `p_<class>`; optionally `id`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from .array_files import read_npy, read_npz
from .tables import read_csv, read_parquet

Array = np.ndarray[Any, np.dtype[Any]]
KINDS = (".npy", ".npz", ".csv", ".parquet")


class ModelProbabilities(NamedTuple):
    """What one model says, before it is matched with any labels."""

    values: Array  # (samples, columns)
    columns: tuple[str, ...] | None = None  # the class of each column; None: by class number
    ids: tuple[str, ...] | None = None  # the sample of each row; None: by position
    name: str = "pred_probs"


def read_probabilities(given: Any, name: str = "pred_probs") -> list[ModelProbabilities]:
    """One entry per model, from an array, a DataFrame, a file, or a list or dict of these."""
    if isinstance(given, str | Path):
        return _of_file(Path(given))
    if isinstance(given, pd.DataFrame):
        return [_of_table(given, name)]
    if isinstance(given, Mapping):
        return [each for key, value in given.items() for each in read_probabilities(value, str(key))]
    if isinstance(given, Sequence) and len(given) and not _is_row(given[0]):
        return [
            each
            for place, value in enumerate(given, 1)
            for each in read_probabilities(value, f"{name} of model {place}")
        ]
    return _of_array(given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given), name)


def _is_row(value: Any) -> bool:
    """Whether a list's first element is one sample's probabilities, not a model's."""
    return not isinstance(value, str | Path | Mapping | pd.DataFrame) and np.ndim(value) == 1


def _of_array(array: Array, name: str, columns: tuple[str, ...] | None = None, ids: Any = None) -> list[Any]:
    if array.dtype.kind not in "fiub" or array.ndim not in (2, 3):
        raise ValueError(
            f"{name} has the shape {array.shape} and the type {array.dtype}; pass numbers of shape (samples, classes), "
            "or (models, samples, classes)"
        )
    names = tuple(map(str, ids)) if ids is not None else None
    if array.ndim == 2:
        return [ModelProbabilities(array, columns, names, name)]
    return [ModelProbabilities(each, columns, names, f"{name}[{place}]") for place, each in enumerate(array)]


def _of_table(table: pd.DataFrame, name: str) -> ModelProbabilities:
    ids = tuple(table["id"].astype(str)) if "id" in table else None
    rest = table.drop(columns="id", errors="ignore")
    texts = [str(column) for column in rest if not pd.api.types.is_numeric_dtype(rest[column])]
    if texts:
        raise ValueError(
            f"{name} has the column '{texts[0]}', which is not numeric; besides 'id' every column must be a class, "
            "called like the class or p_<class>"
        )
    columns = [str(column) for column in rest]
    if columns and all(column.startswith("p_") for column in columns):
        columns = [column.removeprefix("p_") for column in columns]
    return ModelProbabilities(rest.to_numpy(), tuple(columns), ids, name)


def _of_file(path: Path) -> list[ModelProbabilities]:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; pass probabilities as {', '.join(KINDS)}")
    try:
        if path.suffix == ".npy":
            return _of_array(read_npy(path, mapped=True), path.name)
        if path.suffix == ".npz":
            arrays = read_npz(path)
            columns = tuple(map(str, arrays.pop("classes"))) if "classes" in arrays else None
            ids = arrays.pop("id", None)
            if not arrays:
                raise ValueError("it has no array of probabilities")
            models = [_of_array(value, f"{path.name}: {key}", columns, ids) for key, value in arrays.items()]
            return [each for found in models for each in found]
        if path.suffix in (".csv", ".parquet"):
            table = read_csv(path, dtype={"id": str}) if path.suffix == ".csv" else read_parquet(path)
            return [_of_table(table, path.name)]
    except (ValueError, OSError, EOFError) as error:
        if str(path.name) in str(error):
            raise
        raise ValueError(f"{path} cannot be read as probabilities ({error}); pass {', '.join(KINDS)}") from error
    raise ValueError(f"{path} has no supported format; pass probabilities as {', '.join(KINDS)}")

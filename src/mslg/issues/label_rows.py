"""Label issues as rows of labels.parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from .labels_file import KINDS, schema_of
from .ranked_list import LabelIssues

if TYPE_CHECKING:
    import pandas as pd

NAMED = ("given_label", "predicted_label", "suggested_label")
TEXTS = ("id", "path")


def label_frame(issues: LabelIssues, positions: Tensor | None = None) -> pd.DataFrame:
    """The rows of the samples at these positions, by default of all."""
    import pandas as pd

    if positions is None:
        return pd.concat([label_frame(issues, piece) for piece in issues.predictions.pieces()], ignore_index=True)
    names = np.array(issues.predictions.classes, dtype=object)
    columns = {name: _values(name, values, names) for name, values in _columns(issues, positions).items()}
    columns["soft_label"] = pd.Series(list(columns["soft_label"]), dtype=object)
    return pd.DataFrame(columns)


def label_table(issues: LabelIssues, positions: Tensor) -> pa.Table:
    """The same rows with the file's schema."""
    schema = schema_of(paths=issues.predictions.paths is not None, kinds=issues.kinds)
    names = pa.array(issues.predictions.classes, pa.large_string())
    columns = _columns(issues, positions)
    made = [_array(field, columns[field.name], names) for field in schema]
    return pa.table(made, schema=schema)


def _columns(issues: LabelIssues, positions: Tensor) -> dict[str, Any]:
    """The columns as tensors, classes as numbers, and texts as lists."""
    samples = issues.predictions
    given, probs = samples.given[positions], samples.probs(positions)
    columns: dict[str, Any] = {
        "id": samples.ids(positions),
        "given_label": given,
        "predicted_label": torch.where(samples.is_known(positions), probs.argmax(1), given),
        "is_label_issue": issues.flagged[positions],
        "label_quality": issues.quality[positions].float(),
        "suggested_label": issues.suggested[positions].long(),
        "soft_label": issues.soft_labels_of(positions, probs),
        "rank": issues.ranks[positions].long(),
    }
    if samples.paths is not None:
        columns["path"] = samples.paths(positions)
    return columns | {name: values[positions.numpy()] for name, values in issues.kinds.items()}


def _values(name: str, values: Any, names: np.ndarray[Any, Any]) -> Any:
    if name in NAMED:
        return names[values.numpy()]
    return np.array(values, dtype=object) if name in TEXTS else values.numpy() if isinstance(values, Tensor) else values


def _array(field: pa.Field, values: Any, names: pa.Array) -> pa.Array:
    if field.name in NAMED:
        return names.take(pa.array(values.numpy()))
    if field.name == "soft_label":
        return lists(values)
    if field.name in KINDS:
        return pa.array(values, from_pandas=True).cast(field.type)
    return pa.array(values if field.name in TEXTS else values.numpy(), field.type, from_pandas=False)


def lists(values: Tensor) -> pa.ListArray:
    """(rows, n) numbers as a list for each row."""
    rows, length = values.shape
    offsets = pa.array(length * np.arange(rows + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(values.numpy().reshape(-1)))


def label_tables(issues: LabelIssues) -> Iterator[pa.Table]:
    """All rows, as many at a time as fit into memory."""
    return (label_table(issues, piece) for piece in issues.predictions.pieces())

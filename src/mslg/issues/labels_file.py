"""labels.parquet: one row per training sample, in the order of the data.

id, given_label, predicted_label  as text
is_label_issue   whether the label is flagged
label_quality    the probability that the given label is right; NaN for a sample that was never trained on
suggested_label  the given label unless it is flagged
soft_label       (classes,) the learned label, or the prediction of methods that learn none
rank             from 0, the worst label
path             where the samples are files

The file may be larger than memory: it is written and read one row group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ..runtime.files import replacing
from .ranked_list import LabelIssues

NAME = "labels.parquet"
FORMAT = 1
SCHEMA = pa.schema(
    [
        ("id", pa.large_string()),
        ("given_label", pa.large_string()),
        ("predicted_label", pa.large_string()),
        ("is_label_issue", pa.bool_()),
        ("label_quality", pa.float32()),
        ("suggested_label", pa.large_string()),
        ("soft_label", pa.list_(pa.float32())),
        ("rank", pa.int64()),
    ],
    {"format_version": str(FORMAT)},
)
PATH = pa.field("path", pa.large_string())


def label_frame(issues: LabelIssues, positions: Tensor | None = None) -> pd.DataFrame:
    """The rows of the samples at these positions, by default of all."""
    if positions is None:
        return pd.concat([label_frame(issues, piece) for piece in issues.predictions.pieces()], ignore_index=True)
    samples, names = issues.predictions, np.array(issues.predictions.classes, dtype=object)
    given, suggested, probs = samples.given[positions], issues.suggested[positions], samples.probs(positions)
    soft = samples.soft_labels(positions)
    columns: dict[str, Any] = {
        "id": np.array(samples.ids(positions), dtype=object),
        "given_label": names[given.numpy()],
        "predicted_label": names[torch.where(samples.is_known(positions), probs.argmax(1), given).numpy()],
        "is_label_issue": (suggested != given).numpy(),
        "label_quality": issues.quality[positions].float().numpy(),
        "suggested_label": names[suggested.numpy()],
        "soft_label": pd.Series(list((probs if soft is None else soft).detach().float().cpu().numpy()), dtype=object),
        "rank": issues.ranks[positions].long().numpy(),
    }
    return pd.DataFrame(columns if samples.paths is None else {**columns, "path": samples.paths(positions)})


def label_table(issues: LabelIssues, positions: Tensor) -> pa.Table:
    """The same rows with the file's schema."""
    schema = SCHEMA if issues.predictions.paths is None else SCHEMA.append(PATH)
    return pa.Table.from_pandas(label_frame(issues, positions), schema, preserve_index=False)


def write_labels(path: Path, issues: LabelIssues) -> None:
    """Write all rows."""
    pieces = issues.predictions.pieces()
    schema = label_table(issues, pieces[0][:0]).schema
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for piece in pieces:
            writer.write_table(label_table(issues, piece))


def columns_of(folder: Path) -> list[str]:
    """The columns in a run's folder: `path` is there only if the samples are files."""
    names: list[str] = pq.read_schema(folder / NAME).names
    return names


def read_labels(folder: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows in a run's folder, one row group at a time; with only these columns, of which `path` may be missing."""
    with pq.ParquetFile(folder / NAME) as file:
        present = file.schema_arrow.names
        names = present if columns is None else [name for name in columns if name != "path" or name in present]
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=names)

"""labels.parquet: one row per training sample, in the order of the data.

id, given_label, predicted_label  as text
is_label_issue   whether the label is flagged
label_quality    the probability that the given label is right; NaN for a sample that was never trained on
suggested_label  the given label unless it is flagged
soft_label       (classes,) the learned label, or the prediction of methods that learn none
rank             from 0, the worst label
path             where the samples are files
kind             wrong label, ambiguous, near duplicate, no class, or empty; with ambiguous, no_class (above 1: farther
                 off than any verified sample) and duplicate_of (an id), where these were judged
consensus_label, consensus_probability, votes  of several annotators: given_label is then their majority

The file may be larger than memory: it is written and read one row group at a time. Reading it needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..data.readers.tables import accounted_for
from ..runtime import checksums
from ..runtime.files import replacing

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
REPEATED = ("given_label", "predicted_label", "suggested_label", "kind", "consensus_label")
KINDS = {
    "kind": pa.large_string(),
    "ambiguous": pa.float32(),
    "no_class": pa.float32(),
    "duplicate_of": pa.large_string(),
    "consensus_label": pa.large_string(),
    "consensus_probability": pa.float32(),
    "votes": pa.int32(),
}


def schema_of(*, paths: bool, kinds: Iterable[str]) -> pa.Schema:
    """The schema with paths where the samples are files, and the kinds of problem that were judged."""
    schema = SCHEMA.append(PATH) if paths else SCHEMA
    for name in kinds:
        schema = schema.append(pa.field(name, KINDS[name]))
    return schema


def write_labels(folder: Path, tables: Iterable[pa.Table]) -> None:
    """Write the rows into a run's folder, one row group per table."""
    rows = iter(tables)
    first = next(rows)
    repeated = [name for name in REPEATED if name in first.schema.names]
    # A dictionary of the soft labels' numbers would take most of the time and save nothing.
    with (
        replacing(folder / NAME) as temporary,
        pq.ParquetWriter(temporary, first.schema, use_dictionary=repeated) as writer,
    ):
        writer.write_table(first)
        for table in rows:
            writer.write_table(table)


def read_schema(folder: Path) -> pa.Schema:
    """The columns in a run's folder and their types."""
    with _opened(folder) as file:
        return file.schema_arrow


def columns_of(folder: Path) -> list[str]:
    """The columns in a run's folder: `path` is there only if the samples are files."""
    names: list[str] = read_schema(folder).names
    return names


def read_labels(folder: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows in a run's folder, one row group at a time; with only these columns, of which `path` may be missing."""
    with _opened(folder) as file:
        present = file.schema_arrow.names
        names = present if columns is None else [name for name in columns if name != "path" or name in present]
        if missing := [name for name in names if name not in present]:
            raise checksums.DamagedFile(f"{folder / NAME} has no column {missing[0]}; it is not of mslg, or is damaged")
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=names)


def _opened(folder: Path) -> pq.ParquetFile:
    """The file, after its checksum and its columns have been checked."""
    checksums.check(folder, NAME)
    path = folder / NAME
    try:
        file = pq.ParquetFile(accounted_for(path))
        version = (file.schema_arrow.metadata or {}).get(b"format_version", b"1")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise checksums.DamagedFile(f"{path} is damaged: it is not Parquet ({error.__cause__ or error})") from error
    if version != str(FORMAT).encode():
        raise ValueError(f"{path} has format version {version.decode(errors='replace')}, this mslg reads {FORMAT}")
    return file

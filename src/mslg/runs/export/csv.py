"""labels.parquet as CSV: without its soft labels, or with them in one column per class."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ...issues.labels_file import read_labels, read_schema
from ...runtime.cells import escaped
from ...runtime.files import replacing
from ..folder import Run
from . import refuse_existing


def write(run: Run, path: Path, *, force: bool = False, soft: bool = False) -> None:
    """One row group at a time: the table may be larger than memory."""
    refuse_existing(path, force)
    classes = run.read_json("classes.json")["classes"]
    fields = [field for field in read_schema(run.path) if field.name != "soft_label"]
    columns = [field.name for field in fields]
    schema = pa.schema([*fields, *(pa.field(f"p_{name}", pa.float32()) for name in classes if soft)])
    with replacing(path) as temporary, pa_csv.CSVWriter(temporary, schema) as writer:
        for rows in read_labels(run.path):
            parts = [rows[name] for name in columns]
            if soft:
                parts += [pc.list_element(rows["soft_label"], place) for place in range(len(classes))]
            parts = [_escaped(part) for part in parts]
            writer.write_table(
                pa.table([part.cast(field.type) for part, field in zip(parts, schema, strict=True)], schema=schema)
            )


def _escaped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts that no spreadsheet runs; other columns as they are."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    return pa.chunked_array([pa.array([escaped(text) for text in column.to_pylist()], column.type)])

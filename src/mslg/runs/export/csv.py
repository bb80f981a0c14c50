"""The table of labels as CSV: labels.parquet without its soft labels, or with them as a column for each class."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ...runtime.files import replacing
from ..folder import Run
from . import refuse_existing


def write(run: Run, path: Path, *, force: bool = False, soft: bool = False) -> None:
    """Piece by piece: the table may be larger than memory."""
    refuse_existing(path, force)
    classes = run.read_json("classes.json")["classes"]
    table = pq.ParquetFile(run.path / "labels.parquet")
    columns = [name for name in table.schema_arrow.names if name != "soft_label"]
    schema = pa.schema([table.schema_arrow.field(name) for name in columns])
    if soft:
        for name in classes:
            schema = schema.append(pa.field(f"p_{name}", pa.float32()))
    with replacing(path) as temporary, pa_csv.CSVWriter(temporary, schema) as writer:
        for group in range(table.num_row_groups):
            rows = table.read_row_group(group)
            parts = [rows[name] for name in columns]
            if soft:
                parts += [pc.list_element(rows["soft_label"], place) for place in range(len(classes))]
            writer.write_table(pa.table([part.cast(field.type) for part, field in zip(parts, schema)], schema=schema))

"""Write corrupted labels to a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..data.source import Source
from ..runtime.files import write_atomically
from .corruption import Corruption

FORMAT = 1


def write_noisy(path: Path, source: Source, corruption: Corruption, about: Mapping[str, Any]) -> None:
    """Write a Parquet file with id, label, true_label and changed, in the order of the data; its metadata records how
    the noise was made."""
    names = np.array([*source.classes, ""], dtype=object)  # −1, an unknown true label, selects the last one: empty
    true = source.with_label(corruption.label).true_label
    assert true is not None
    table = pa.table(
        {
            "id": pa.array(source.ids, pa.string()),
            "label": pa.array(names[corruption.label.numpy()], pa.string()),
            "true_label": pa.array(names[true.numpy()], pa.string(), mask=true.numpy() < 0),
            "changed": pa.array((corruption.label != corruption.before).numpy()),
        }
    )
    table = table.replace_schema_metadata(
        {"format_version": str(FORMAT), "noise": json.dumps(about, ensure_ascii=False)}
    )
    content = BytesIO()
    pq.write_table(table, content)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())

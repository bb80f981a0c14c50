"""next.parquet: the samples that `mslg review-next` chose, with previews, for a tab of the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..data.source import Source
from ..issues.labels_file import read_labels
from ..issues.previews import preview_of
from ..issues.suspects import HISTORY, SIDE
from ..runtime.files import replacing

NAME = "next.parquet"
# What a run keeps of its suspects only.
EVIDENCE = {"posterior": pa.list_(pa.float32()), **HISTORY, "nearest": pa.list_(pa.string())}


def write_next(folder: Path, ids: Sequence[str], source: Source) -> None:
    """Write the rows of these samples, in this order, into a run's folder."""
    wanted = pa.array(ids, pa.large_string())
    rows = pa.concat_tables([part.filter(pc.is_in(part["id"], value_set=wanted)) for part in read_labels(folder)])
    rows = rows.take(pc.index_in(wanted, value_set=rows["id"]))
    chosen = set(ids)
    place = {name: position for position, name in enumerate(source.ids) if name in chosen}
    previews = [preview_of(source, place[name], side=SIDE) for name in ids]
    known = _evidence(folder, chosen)
    columns = {
        "view_kind": pa.array([preview.kind for preview in previews], pa.string()),
        "view": pa.array([preview.content for preview in previews], pa.binary()),
        **{name: pa.array([known.get(each, {}).get(name) or [] for each in ids], EVIDENCE[name]) for name in EVIDENCE},
    }
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    with replacing(folder / NAME) as temporary:
        pq.write_table(rows, temporary)


def _evidence(folder: Path, ids: set[str]) -> dict[str, dict[str, Any]]:
    """What the run keeps of those of the samples that are among its suspects, by id."""
    path = folder / "suspects.parquet"
    if not path.exists():
        return {}
    columns = [name for name in ("id", *EVIDENCE) if name in pq.read_schema(path).names]
    return {row["id"]: row for row in pq.read_table(path, columns=columns).to_pylist() if row["id"] in ids}

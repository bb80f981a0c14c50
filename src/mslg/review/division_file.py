"""division.parquet: the clean samples of a run, and the part each is in.

id, label        the verified label
given_label      where the sample is one of the noisy data's
part             meta, select or report; reviewed: one of meta that a review has added
in_data          whether the sample is one of the noisy data's
path             where the samples are files
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..data.samples import Samples
from ..data.splits import Splits
from ..data.stores import Located
from ..runtime import checksums
from ..runtime.files import regular

NAME = "division.parquet"
FORMAT = 1
COLUMNS = ("id", "label", "given_label", "part")  # that every division has


def division_table(data: Splits) -> pa.Table:
    """One row per clean sample."""
    parts: dict[str, Samples | None] = {
        "meta": data.drawn_clean,
        "select": data.select,
        "report": data.report,
        "reviewed": data.reviewed_clean,
    }
    place = {name: position for position, name in enumerate(data.source.ids)}
    tables = [_rows(name, part, data, place) for name, part in parts.items() if part is not None and len(part)]
    return pa.concat_tables(tables, promote_options="default") if tables else _empty()


def write_division(table: pa.Table) -> bytes:
    """The content of the file."""
    content = BytesIO()
    pq.write_table(table.replace_schema_metadata({"format_version": str(FORMAT)}), content)
    return content.getvalue()


def read_division(folder: Path) -> pa.Table:
    """The clean samples in a run's folder; an empty table if it has none."""
    checksums.check(folder, NAME)
    if not (folder / NAME).exists():
        return _empty()
    try:
        return pq.read_table(regular(folder / NAME))
    except (pa.ArrowException, OSError) as error:
        raise checksums.DamagedFile(f"{folder / NAME} is damaged: it is not Parquet ({error})") from error


def drawn_samples(table: pa.Table) -> list[tuple[str, str, str]]:
    """(id, label, part) of the clean samples that were not added by a review, sorted."""
    rows = zip(*(table[column].to_pylist() for column in ("id", "label", "part")), strict=True)
    return sorted(row for row in rows if row[2] != "reviewed")


def _empty() -> pa.Table:
    return pa.Table.from_batches([], pa.schema([(name, pa.string()) for name in COLUMNS]))  # others import pandas


def _rows(name: str, part: Samples, data: Splits, place: dict[str, int]) -> pa.Table:
    origin, source = part.origin, data.source
    assert origin is not None
    index = part.index.tolist()
    ids = origin.ids_at(part.index)
    # Ids that are only positions mean nothing in another set.
    same_ids = name == "reviewed" or origin is source or (origin.ids_given and source.ids_given)
    here = [place.get(each) if same_ids else None for each in ids]
    given = [None if position is None else source.classes[int(source.label[position])] for position in here]
    columns = {
        "id": pa.array(ids, pa.string()),
        "label": pa.array([source.classes[number] for number in part.label.tolist()], pa.string()),
        "given_label": pa.array(given, pa.string()),
        "part": pa.array([name] * len(ids), pa.string()),
        "in_data": pa.array([position is not None for position in here]),
    }
    if isinstance(part.store, Located):
        columns["path"] = pa.array([str(part.store.path(position)) for position in index], pa.string())
    return pa.table(columns)

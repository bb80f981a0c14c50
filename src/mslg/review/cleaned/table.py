"""A cleaned data set as a table: id, label, path if the samples are files, given_label, decision, label_source."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ...runtime.cells import escaped
from ...runtime.files import replacing
from .samples import Sample

FORMAT = 1
COLUMNS = ("id", "label", "given_label", "decision", "label_source")


def write_parquet(path: Path, pieces: Iterator[list[Sample]], files: bool) -> None:
    """One row group per piece."""
    names = _columns(files)
    schema = pa.schema([(name, pa.string()) for name in names], {"format_version": str(FORMAT)})
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for piece in pieces:
            columns = zip(*_rows(piece, names, path), strict=True)
            writer.write_table(pa.table([pa.array(column, pa.string()) for column in columns], schema=schema))


def write_csv(path: Path, pieces: Iterator[list[Sample]], files: bool) -> None:
    names = _columns(files)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for piece in pieces:
            writer.writerows(map(escaped, row) for row in _rows(piece, names, path))


def _columns(files: bool) -> tuple[str, ...]:
    return (*COLUMNS[:2], *(["path"] if files else []), *COLUMNS[2:])


def _rows(piece: list[Sample], names: tuple[str, ...], table: Path) -> Iterator[tuple[str | None, ...]]:
    for sample in piece:
        if sample.path is not None:
            sample = sample._replace(path=_below(sample.path, table.parent))
        yield tuple(getattr(sample, name) for name in names)


def _below(path: str, folder: Path) -> str:
    """Relative to the table if the file is below its folder, so that the table is a manifest; else absolute, as a path
    relative to the working directory would mean another file to whoever reads the table."""
    whole, here = _full(Path(path)), _full(folder)
    return whole.relative_to(here).as_posix() if whole.is_relative_to(here) else str(whole)


def _full(path: Path) -> Path:
    """Links are not resolved, unless `..` makes a file seem to be below a folder that it is not in."""
    return path.resolve() if ".." in path.parts else path.absolute()

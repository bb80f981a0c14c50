"""The cleaned data set: image files with a metadata.parquet, or one Parquet file with the inputs as columns; `datasets`
reads both. Where the inputs cannot be had, the labels by id."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ...issues import labels_file
from ...runs.folder import Run
from ..cleaned.folder import free_name, place, refuse_inside, refuse_other_files, safe_name
from ..cleaned.samples import Counts, Sample, cleaned_samples
from .inputs import Unavailable, open_inputs

log = logging.getLogger("mslg")

DATA, FILES = "data/train-00000-of-00001.parquet", "data/train"
FILE_NAME, METADATA = "file_name", "metadata.parquet"  # as the library's imagefolder wants them
IN_A_FOLDER = 10_000  # files: the most that the hub takes
DECIDED = ("id", "label", "given_label", "label_source", "decision", "suggested_label", "label_quality")


class WrittenData(NamedTuple):
    """What was written."""

    counts: Counts
    data_files: str
    inputs: tuple[str, ...]  # the columns of the inputs
    columns: tuple[str, ...]
    why_not: str = ""  # why there are no inputs


def write_dataset(
    run: Run,
    folder: Path,
    *,
    target: Path,
    noisy: Any,
    decisions: Path | str | None,
    suggested: bool,
    link: bool,
    within: Sequence[Path],
) -> WrittenData:
    """Write the data into `folder`, which becomes part of `target`. Only files below the folders `within` are taken."""
    (folder / "data").mkdir(parents=True)
    pieces, counts = cleaned_samples(run, decisions, suggested=suggested)
    tables = _tables(run, pieces)
    try:
        if "path" in labels_file.columns_of(run.path):
            found = _write_files(tables, folder, target, link=link, within=within)
        else:
            found = _write_columns(run, tables, folder, target, noisy=noisy, within=within)
    except Unavailable as error:
        why, detail = str(error), error.detail
        log.warning("the inputs are not in %s, only labels by id: %s", target, f"{why} ({detail})" if detail else why)
        if not (folder / DATA).exists():
            _write(folder / DATA, (table for _, table in tables))
        found = DATA, (), why
    data_files, inputs, why_not = found
    written = folder / (DATA if data_files == DATA else f"{FILES}/{METADATA}")
    return WrittenData(counts, data_files, inputs, tuple(pq.read_schema(written).names), why_not)


def _tables(run: Run, pieces: Iterator[list[Sample]]) -> Iterator[tuple[list[Sample], pa.Table]]:
    """The samples with a table of all that is known about their labels, which has no paths on this machine."""
    schema = labels_file.read_schema(run.path)
    names = [name for name in schema.names if name not in (*DECIDED, "path")]
    rows = labels_file.read_labels(run.path, ["id", *names])
    here: dict[str, int] = {}
    table = schema.empty_table()
    for piece in pieces:
        more: dict[str, Any] = {name: pa.nulls(len(piece), schema.field(name).type) for name in names}
        if piece[0].suggested_label is not None:  # not of the clean set; a piece is of one row group
            while piece[0].id not in here:
                table = next(rows)
                here = {name: row for row, name in enumerate(table["id"].to_pylist())}
            chosen = table.take([here[sample.id] for sample in piece])
            more = {name: chosen[name] for name in names}
        kinds = {"label_quality": pa.float32()}
        own = {
            name: pa.array([getattr(sample, name) for sample in piece], kinds.get(name, pa.large_string()))
            for name in DECIDED
        }
        yield piece, pa.table({**own, **more})


def _write_columns(
    run: Run,
    tables: Iterator[tuple[list[Sample], pa.Table]],
    folder: Path,
    target: Path,
    *,
    noisy: Any,
    within: Sequence[Path],
) -> tuple[str, tuple[str, ...], str]:
    taken = [*DECIDED, *labels_file.columns_of(run.path)]
    inputs = open_inputs(run, noisy, target=target, within=within, taken=taken)

    def joined() -> Iterator[pa.Table]:
        for piece, table in tables:
            for name, column in inputs.at([sample.id for sample in piece]).items():
                table = table.append_column(name, column)
            yield table

    _write(folder / DATA, joined())
    return DATA, tuple(inputs.parts), ""


def _write_files(
    tables: Iterator[tuple[list[Sample], pa.Table]],
    folder: Path,
    target: Path,
    *,
    link: bool,
    within: Sequence[Path],
) -> tuple[str, tuple[str, ...], str]:
    homes = [os.path.realpath(home) for home in within]
    files, taken, missing = folder / FILES, dict[str, int](), list[str]()
    files.mkdir()
    placed = 0

    def named(sample: Sample) -> str:
        nonlocal placed
        source = Path(sample.path or "")
        if not source.is_file():
            missing.append(str(source))
            return ""
        refuse_inside(source, target)
        refuse_other_files(source, homes)
        name = f"{placed // IN_A_FOLDER:04d}/{free_name(safe_name(source.name), taken)}"
        (files / name).parent.mkdir(exist_ok=True)
        if not missing:  # otherwise none is kept
            place(source, files / name, link)
        placed += 1
        return name

    def joined() -> Iterator[pa.Table]:
        for piece, table in tables:
            yield table.add_column(0, FILE_NAME, pa.array(map(named, piece), pa.large_string()))

    _write(files / METADATA, joined())
    if missing:
        with pq.ParquetFile(files / METADATA) as written:
            groups = (written.read_row_group(group) for group in range(written.num_row_groups))
            _write(folder / DATA, (group.drop_columns([FILE_NAME]) for group in groups))
        shutil.rmtree(files)
        raise Unavailable(
            f"{len(missing)} of {len(missing) + placed} files were missing",
            f"such as {missing[0]}; relative paths start at the folder in which mslg fit was run: go there",
        )
    return f"{FILES}/**", (FILE_NAME,), ""


def _write(path: Path, tables: Iterable[pa.Table]) -> None:
    writer = None
    for table in tables:
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is None:
        pq.write_table(pa.table({name: pa.array([], pa.large_string()) for name in DECIDED[:2]}), path)
    else:
        writer.close()

"""A cleaned data set as a file or a folder. `mslg apply` and `mslg export` both write with these functions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...issues.labels_file import columns_of
from ...registry import unknown
from ...runs.export import refuse_existing
from ...runs.finished import reading
from ...runs.folder import Run
from .folder import write_folder
from .label_studio import write_label_studio
from .samples import Counts, Sample, cleaned_samples
from .table import write_csv, write_parquet

log = logging.getLogger("mslg")

FORMATS = ("parquet", "csv", "label-studio", "imagefolder")
OF_FILES = ("label-studio", "imagefolder")  # formats that need samples that are files


class Written(NamedTuple):
    """What was written."""

    counts: Counts
    folders: dict[str, str]  # of classes whose names no folder can have


def format_of(path: Path, to: str | None) -> str:
    """The format asked for, or the one that the file's name ends in."""
    if to is not None and to not in FORMATS:
        raise unknown("format", to, FORMATS)
    found = to or path.suffix.removeprefix(".")
    if found not in FORMATS:
        raise ValueError(
            f"the format of {path} is not clear; end it in .parquet or .csv, or name one with --to: "
            f"{', '.join(FORMATS)}"
        )
    return found


def write_cleaned(
    run: Run,
    path: Path,
    to: str,
    *,
    decisions: Path | str | None = None,
    suggested: bool = False,
    link: bool = False,
    document_root: Path | str = "/",
    force: bool = False,
    data: Path | str | None = None,
) -> Written:
    """Write the data of a run with corrected labels: as decided, else as given, or with `suggested` as suggested. Image
    files are taken from below the current folder, the folder that contains the run, and `data`."""
    pieces, counts = cleaned_samples(run, decisions, suggested=suggested)
    files: dict[str, Any] = {"link": link, "document_root": document_root, "data": data}
    with reading(run.path):
        return Written(counts, _write(run, path, to, pieces, force=force, **files))


def export_imagefolder(
    run: Run,
    path: Path,
    *,
    force: bool = False,
    decisions: Path | str | None = None,
    suggested: bool = False,
    link: bool = False,
    data: Path | str | None = None,
) -> None:
    """One folder per class. Copies, or with `link` hard links, and symbolic ones to another file system."""
    how: dict[str, Any] = {"decisions": decisions, "suggested": suggested, "link": link, "force": force, "data": data}
    done = write_cleaned(run, path, "imagefolder", **how)
    counts = done.counts
    log.info("%d files, %d not under the given label; %d removed", counts.samples, counts.changed, counts.removed)
    for name, folder in done.folders.items():
        log.info("class '%s' is in the folder '%s'", name, folder)


def export_label_studio(
    run: Run,
    path: Path,
    *,
    force: bool = False,
    all: bool = False,
    decisions: Path | str | None = None,
    document_root: Path | str = "/",
) -> None:
    """Flagged samples (with `all`, all training samples) as tasks with the suggested label as a prediction to confirm,
    and the labelling interface as XML."""
    pieces, _ = cleaned_samples(run, decisions)
    tasks = (
        [
            sample
            for sample in piece
            if sample.suggested_label is not None and (all or sample.suggested_label != sample.given_label)
        ]
        for piece in pieces
    )
    _write(run, path, "label-studio", tasks, document_root=document_root, force=force)


def folders_of_data(run: Run, data: Path | str | None) -> list[Path]:
    """Where files that a run's folder names may be: below the current folder, the one that contains the run, `data`."""
    return [Path.cwd(), run.path.absolute().parent, *([] if data is None else [Path(data)])]


def _write(
    run: Run,
    path: Path,
    to: str,
    pieces: Iterator[list[Sample]],
    *,
    link: bool = False,
    document_root: Path | str = "/",
    force: bool = False,
    data: Path | str | None = None,
) -> dict[str, str]:
    classes, files = run.read_json("classes.json")["classes"], "path" in columns_of(run.path)
    if to in OF_FILES and not files:
        raise ValueError(
            f"the samples of this run are not files, so they cannot be written as {to}; write a table (.parquet or "
            ".csv) and pass it to mslg fit with --labels"
        )
    if to == "imagefolder":
        return write_folder(path, pieces, classes, link=link, force=force, within=folders_of_data(run, data))
    refuse_existing(path, force)
    if to == "label-studio":
        write_label_studio(path, pieces, classes, Path(document_root))
    else:
        (write_csv if to == "csv" else write_parquet)(path, pieces, files)
    return {}

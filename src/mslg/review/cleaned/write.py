"""A cleaned data set as a file or a folder, in the format asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...registry import unknown
from .folder import write_folder
from .label_studio import write_label_studio
from .samples import Sample
from .table import write_csv, write_parquet

FORMATS = ("parquet", "csv", "label-studio", "imagefolder")
OF_FILES = ("label-studio", "imagefolder")  # formats that only samples which are files can have


def format_of(path: Path, asked: str | None) -> str:
    """The format asked for, or the one that the name of the file tells."""
    if asked is not None and asked not in FORMATS:
        raise unknown("format", asked, FORMATS)
    told = asked or path.suffix.removeprefix(".")
    if told not in FORMATS:
        raise ValueError(
            f"{path} does not tell its format; end it in .parquet or .csv, or name one with --to: {', '.join(FORMATS)}"
        )
    return told


def write(
    path: Path,
    pieces: Iterator[list[Sample]],
    kind: str,
    *,
    classes: Sequence[str],
    files: bool,
    link: bool = False,
    document_root: Path = Path("/"),
    force: bool = False,
) -> dict[str, str]:
    """Write the samples; `files` says whether they are files. Returns the classes whose folders are named otherwise."""
    if kind in OF_FILES and not files:
        raise ValueError(
            f"the samples of this run are no files, so they cannot be written as {kind}; write a table (.parquet or "
            ".csv) and give it to mslg fit with --labels"
        )
    if kind == "imagefolder":
        return write_folder(path, pieces, classes, link=link, force=force)
    if path.exists() and not force:
        raise FileExistsError(f"{path} is already there; choose another name, or replace it with --force")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "label-studio":
        write_label_studio(path, pieces, classes, document_root)
    elif kind == "csv":
        write_csv(path, pieces, files)
    else:
        write_parquet(path, pieces, files)
    return {}

"""A cleaned data set as an image folder: one folder per class, with copies of the files or links to them."""

from __future__ import annotations

import json
import os
import re
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...data.images import EXTENSIONS, EscapingPath
from ...runtime.files import replacing_folder
from .samples import Sample

MARK = ".mslg.json"  # in folders written here: no others are replaced
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))}
LONGEST = 200  # bytes of a name; file systems allow 255
SHOWN = 5


def write_folder(
    path: Path,
    pieces: Iterator[list[Sample]],
    classes: Sequence[str],
    *,
    link: bool,
    force: bool,
    within: Sequence[Path],
) -> dict[str, str]:
    """The folder appears when it is complete. Only images below the folders `within` are taken: their paths come from a
    file that somebody else may have made. Returns the classes whose folders have other names."""
    _checkplace(path, force)
    homes = [os.path.realpath(folder) for folder in within]
    names = folder_names(classes)
    with replacing_folder(path) as temporary:
        for name in names.values():
            (temporary / name).mkdir()
        taken: dict[str, dict[str, int]] = {name: {} for name in names.values()}
        missing: list[str] = []
        for piece in pieces:
            for sample in piece:
                assert sample.path is not None
                source = Path(sample.path)
                if not source.is_file():
                    missing.append(sample.path)
                    continue
                refuse_inside(source, path)
                refuse_other_files(source, homes)
                folder = names[sample.label]
                place(source, temporary / folder / free_name(safe_name(source.name), taken[folder]), link)
        if missing:
            raise FileNotFoundError(
                f"{len(missing)} files are missing, such as {', '.join(missing[:SHOWN])}; relative paths start at the "
                "folder in which mslg fit was run: go there"
            )
        (temporary / MARK).write_text(json.dumps({"format_version": 1, "classes": names}, ensure_ascii=False) + "\n")
    return {name: folder for name, folder in names.items() if name != folder}


def folder_names(classes: Sequence[str]) -> dict[str, str]:
    """One folder name per class that is valid on every file system and cannot lead elsewhere."""
    taken: dict[str, int] = {}
    return {name: free_name(safe_name(name), taken) for name in classes}


def safe_name(name: str) -> str:
    """A name without separators and characters that are special to a file system, and that is not hidden."""
    safe = re.sub(r'[<>:"/\\|?*\x00-\x1f\x7f]', "_", unicodedata.normalize("NFC", name))
    if len(safe.encode("utf-8", "replace")) > LONGEST:
        ending = Path(safe).suffix[:10]
        safe = safe.encode("utf-8", "replace")[: LONGEST - 40].decode("utf-8", "ignore") + ending
    safe = safe.rstrip(". ")
    if not safe or safe.startswith((".", " ", "~")) or safe.partition(".")[0].lower() in RESERVED:
        safe = f"_{safe}"
    return safe


def free_name(name: str, taken: dict[str, int]) -> str:
    """The name, with a number if it is taken; case is ignored, as by some file systems. `taken` holds the last number
    tried for each name, as a million files may all have the same one."""
    stem, dot, suffix = name.rpartition(".")
    base, ending = (stem, f".{suffix}") if dot and stem else (name, "")
    free, number = name, taken.get(name.casefold(), 1)
    while free.casefold() in taken:
        number += 1
        free = f"{base}-{number}{ending}"
    taken[name.casefold()] = number
    taken.setdefault(free.casefold(), 1)
    return free


def place(source: Path, target: Path, link: bool) -> None:
    """Copy a file, or link it: hard, or symbolically to another file system."""
    if not link:
        shutil.copy2(source, target)
        return
    real = source.resolve()
    try:
        os.link(real, target)
    except OSError:  # another file system
        target.symlink_to(real)


def _checkplace(path: Path, force: bool) -> None:
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir():
        raise FileExistsError(f"{path} is a file; name a folder")
    if not force:
        raise FileExistsError(f"{path} is not empty; choose another folder, or replace it with --force")
    if not (path / MARK).exists():
        raise FileExistsError(f"{path} was not written by mslg (it has no {MARK}) and will not be deleted")


def refuse_other_files(source: Path, homes: Sequence[str]) -> None:
    """Raise unless this is an image below one of the folders, symbolic links resolved."""
    real = os.path.realpath(source)
    refuse_outside(source, homes, name=Path(real).parent.parent)
    if not real.lower().endswith(EXTENSIONS):
        raise ValueError(f"{source} is not an image file (its name ends in none of {', '.join(EXTENSIONS)})")


def refuse_outside(source: Path, homes: Sequence[str], *, name: Path) -> None:
    """Raise unless this is below one of the folders, symbolic links resolved; `name` is the folder to name instead."""
    if not any(Path(os.path.realpath(source)).is_relative_to(home) for home in homes):
        raise EscapingPath(
            f"{source} is outside of {' and '.join(homes)}, and paths in a run's folder are not followed "
            f"anywhere else; if these are your files, name their folder: --data {name}"
        )


def refuse_inside(source: Path, path: Path) -> None:
    """The folder to be replaced must not contain the files it is made from."""
    if source.resolve().is_relative_to(path.resolve()):
        raise ValueError(f"{source} lies in {path}, which would be replaced; choose another folder")

"""Checksums of the files in a folder, kept in `checksums.json` beside them and compared when they are read.

A file that is about to be replaced is struck off the list first and added again when it is complete, so that a process
killed in between leaves a file without a checksum, never a right file with a wrong one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from .files import regular, write_atomically

NAME = "checksums.json"
FORMAT = 1

_checked: set[tuple[str, int, int, str]] = set()  # files as they were when they were last found right


class DamagedFile(ValueError):
    """A file is not what was written."""


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recorded(folder: Path) -> dict[str, str]:
    """The checksums by file name; empty for a folder that was written before there were any."""
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        content = json.loads(regular(path).read_text(encoding="utf-8"))
        version, sums, own = content["format_version"], content["sha256"], content["of_this_list"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged_list(path) from error
    if isinstance(version, int) and version > FORMAT:
        raise ValueError(
            f"{path} has format version {version}, this version of mslg reads up to {FORMAT}: upgrade mslg"
        )
    if own != _of_list(sums):
        raise _damaged_list(path)
    return dict(sums)


def record(folder: Path, names: Iterable[str]) -> None:
    """Add the files that are there now."""
    sums = recorded(folder)
    new = {name: sha256_of(folder / name) for name in names if (folder / name).is_file()}
    _write(folder, {**sums, **new})


def forget(folder: Path, names: Iterable[str]) -> None:
    """Strike files off the list: they are about to be replaced."""
    sums, gone = recorded(folder), set(names)
    if gone & set(sums):
        _write(folder, {name: digest for name, digest in sums.items() if name not in gone})


def is_right(folder: Path, name: str, sums: Mapping[str, str]) -> bool:
    """Whether a file is as recorded; one that is not on the list is."""
    if name not in sums:
        return True
    try:
        about = (folder / name).stat()
    except OSError:
        return False
    key = (str((folder / name).absolute()), about.st_mtime_ns, about.st_size, sums[name])
    if key not in _checked and sha256_of(folder / name) == sums[name]:
        _checked.add(key)
    return key in _checked


def check(folder: Path, *names: str) -> None:
    """Raise for the first of these files that is not as recorded, with what to do about it."""
    sums = recorded(folder)
    for name in names:
        if not is_right(folder, name, sums):
            path = folder / name
            what = "was changed or damaged after it was written" if path.exists() else "is missing"
            raise DamagedFile(f"{path} {what} ({NAME}); {remedy(folder, name)}")


def remedy(folder: Path, name: str) -> str:
    """What to do about a file that is not as recorded."""
    accept = f"if you changed it on purpose: mslg verify {folder} --accept {name}"
    if name == "config.toml":
        new = f"mslg fit --recipe {folder / name} -o NEW"
        return f"put the old one back, or start a run with the new settings: {new}; {accept}"
    if name in ("division.parquet", "decisions.csv"):
        return f"put it back from a copy, or start over; {accept}"
    if (folder / "checkpoint").is_dir():
        return f"delete {folder / 'done'} and write it again: mslg fit -o {folder} --resume; {accept}"
    return f"get the folder anew from where it came from; {accept}"


def _write(folder: Path, sums: Mapping[str, str]) -> None:
    content = {"format_version": FORMAT, "of_this_list": _of_list(sums), "sha256": dict(sorted(sums.items()))}
    write_atomically(folder / NAME, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def _of_list(sums: object) -> str:
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()[:16]


def _damaged_list(path: Path) -> DamagedFile:
    return DamagedFile(
        f"{path} is damaged, so nothing can be said about the other files; if they are right: "
        f"mslg verify {path.parent} --accept"
    )

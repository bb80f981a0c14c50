"""Whether the files of a run are as the run has written them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..runtime import checksums, locks
from ..runtime.files import PARTIAL
from .checkpoint import load_state
from .sharded_checkpoint import are_shards, check_shards


class Checked(NamedTuple):
    """A file, and what is wrong with it."""

    path: Path
    problem: str | None = None


def verify(folder: Path) -> Iterator[Checked]:
    """Every file of a run or an exported model that has a checksum, its checkpoints, and the same of its controls."""
    sums = checksums.recorded(folder)
    for name in sums:
        right = checksums.is_right(folder, name, sums)
        what = "changed or damaged" if (folder / name).exists() else "missing"
        yield Checked(folder / name, None if right else f"{what}; {checksums.remedy(folder, name)}")
    yield from _checkpoints(folder / "checkpoint")
    for control in sorted(path.parent for path in (folder / "controls").glob("*/config.toml")):
        yield from verify(control)


def uncovered(folder: Path) -> list[Path]:
    """The files of a run that have no checksum: pages and exports, tables in files, what a killed process has left."""
    sums = checksums.recorded(folder)
    own = {*sums, checksums.NAME, locks.NAME, "done"}
    return sorted(path for path in folder.iterdir() if path.name not in own and not _covered_folder(path))


def accept(folder: Path, names: list[str]) -> list[str]:
    """Take the files as they are for right: these, or all that have a checksum. Returns their names."""
    try:
        known = checksums.recorded(folder)
    except checksums.DamagedFile:
        (folder / checksums.NAME).unlink()
        known = {path.name: "" for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")}
    chosen = names or list(known)
    for name in chosen:
        if Path(name).name != name or not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no file {name}; name one that is directly in it")
    checksums.record(folder, chosen)
    return chosen


def _checkpoints(folder: Path) -> Iterator[Checked]:
    for path in sorted(folder.glob("*.safetensors")):
        if path.match(PARTIAL):
            continue
        yield Checked(path, _problem(load_state, path))
    if are_shards(folder):
        yield Checked(folder, _problem(check_shards, folder))


def _problem(read: Callable[[Path], object], path: Path) -> str | None:
    try:
        read(path)
    except (ValueError, OSError) as error:
        return str(error)
    return None


def _covered_folder(path: Path) -> bool:
    return path.is_dir() and path.name in ("checkpoint", "controls")

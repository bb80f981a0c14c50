"""The results of a sweep: one line of JSON per finished cell, in a small file that can be committed."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..runtime.files import write_atomically
from ..runtime.machine import versions
from .grid import Cell

FORMAT = 1
FILE = "cells.jsonl"
STALE = "stale.jsonl"  # results whose settings the recipe has changed since
KEPT = (
    "test/accuracy",
    "select/accuracy",
    "report/accuracy",
    "given/accuracy",
    "predictions/accuracy",
    "labels/accuracy",
    "suggested/accuracy",
)
CURVES = ("test/accuracy", "predictions/accuracy", "predictions/differ", "labels/accuracy")
POINTS = 24  # per curve


@dataclass(frozen=True)
class Finished:
    """The result of a cell: metrics of the last epoch and of the best one on the select part, and curves."""

    row: str
    column: str
    seed: int
    settings: str  # the cell's digest
    state: str  # "done", or "failed" when training diverged
    last: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    epochs: list[int] = field(default_factory=list)  # of the points of the curves
    curves: dict[str, list[float | None]] = field(default_factory=dict)
    seconds: float = 0.0
    commit: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.row, self.column, self.seed


def finished(
    cell: Cell, summary: Mapping[str, Any], history: Sequence[Mapping[str, float]], seconds: float
) -> Finished:
    """The result of a cell from the summary and the history of its run."""
    chosen = history[:: max(1, -(-len(history) // POINTS))]
    if history and chosen[-1] is not history[-1]:
        chosen = [*chosen, history[-1]]  # the table shows the last epoch
    curves = {name: [_point(line.get(name)) for line in chosen] for name in CURVES}
    return Finished(
        *cell.key,
        settings=cell.digest,
        state=str(summary["state"]),
        last=_rounded(summary.get("last", {})),
        best=_rounded(summary.get("best_on_select", {})),
        epochs=[int(line["epoch"]) for line in chosen],
        curves={name: points for name, points in curves.items() if any(point is not None for point in points)},
        seconds=round(seconds, 1),
        commit=commit(),
        versions=versions(),
    )


class Ledger:
    """The file of results. Only the process that runs the sweep writes to it, one line at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.stale = folder / STALE

    def read(self) -> dict[tuple[str, str, int], Finished]:
        """All results; the later of two for the same cell counts."""
        return {cell.key: cell for cell in _lines(self.path)}

    def add(self, cell: Finished) -> None:
        """Append a result."""
        with self.path.open("a") as file:
            file.write(_line(cell))

    def known(self, wanted: Iterable[Cell]) -> dict[tuple[str, str, int], Finished]:
        """The results of these cells with these settings, stale ones included, in the order of the cells."""
        found = self._all()
        return {cell.key: found[place] for cell in wanted if (place := (*cell.key, cell.digest)) in found}

    def _all(self) -> dict[tuple[str, str, int, str], Finished]:
        return {(*cell.key, cell.settings): cell for path in (self.stale, self.path) for cell in _lines(path)}

    def tidy(self, wanted: Iterable[Cell]) -> dict[tuple[str, str, int], Finished]:
        """Rewrite the file with the results of these cells with these settings, in their order, and return them.

        Other results are moved to the stale file, not deleted: they count again if the recipe changes back.
        """
        kept = self.known(wanted)
        found = self._all()
        for cell in kept.values():
            del found[*cell.key, cell.settings]
        if found:
            _write(self.stale, found.values())
        _write(self.path, kept.values())
        if not found:
            self.stale.unlink(missing_ok=True)
        return kept


def _lines(path: Path) -> Iterator[Finished]:
    if not path.exists():
        return
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line)
            if number == 1:
                if content["format_version"] != FORMAT:
                    raise ValueError(f"{path} has format version {content['format_version']}; this mslg reads {FORMAT}")
                continue
            yield Finished(**content)
        except (json.JSONDecodeError, TypeError, KeyError) as error:
            if number == len(lines):
                return  # the process was killed while writing; that cell is run again
            raise ValueError(f"{path}, line {number} cannot be read: {error}") from error


def _write(path: Path, cells: Iterable[Finished]) -> None:
    text = json.dumps({"format_version": FORMAT, "kind": "cells of a sweep"}) + "\n" + "".join(map(_line, cells))
    if not path.exists() or path.read_text() != text:
        write_atomically(path, text.encode())


@lru_cache(1)
def commit(file: Path = Path(__file__)) -> str:
    """The commit of the running source tree, with a + if it has changes; empty if the file is not tracked, for instance
    in an environment that lies inside another repository."""
    try:
        _git(file, "ls-files", "--error-unmatch", file.name)
        return _git(file, "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*").strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(file: Path, *words: str) -> str:
    command = ["git", *words]
    return subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=10, check=True).stdout


def _line(cell: Finished) -> str:
    return json.dumps(asdict(cell), separators=(",", ":")) + "\n"


def _rounded(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: round(metrics[name], 5) for name in KEPT if metrics.get(name) is not None}


def _point(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 5)

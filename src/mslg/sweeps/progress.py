"""Progress of a sweep on stderr: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..runtime.durations import in_words
from .grid import Cell, Grid
from .ledger import Finished
from .pool import Event

Key = tuple[str, str, int]
MEASURE = "test/accuracy"


class Standing:
    """The state of a sweep: which cells are finished, running, failed or still to run."""

    def __init__(self, cells: Sequence[Cell], finished: Mapping[Key, Finished], processes: int) -> None:
        self.cells = {cell.key: cell for cell in cells}
        self.finished = {key: found for key, found in finished.items() if key in self.cells}
        self.processes = max(1, processes)
        self.running: dict[Key, tuple[Event, float]] = {}  # the latest event, and when the cell started
        self.errors: dict[Key, str] = {}

    def update(self, event: Event) -> None:
        key = event.cell.key
        if event.finished is None and event.error is None:
            begun = self.running[key][1] if key in self.running else time.monotonic()
            self.running[key] = event, begun
            return
        self.running.pop(key, None)
        if event.finished is not None:
            self.finished[key] = event.finished
        else:
            self.errors[key] = str(event.error)

    def seconds_left(self) -> float | None:
        """Estimated from the finished cells, of the same row where there are any; None before the first is finished."""
        by_row: dict[str, list[float]] = {}
        for found in self.finished.values():
            if found.seconds > 0:
                by_row.setdefault(found.row, []).append(found.seconds)
        if not by_row:
            return None
        typical = {row: statistics.fmean(seconds) for row, seconds in by_row.items()}
        usual = statistics.fmean(typical.values())
        left = 0.0
        for key in self.cells:
            if key in self.finished or key in self.errors:
                continue
            done = 0.0
            if key in self.running:
                event, begun = self.running[key]
                passed = (time.monotonic() - begun) / typical.get(key[0], usual)
                done = min(1.0, event.epoch / event.epochs if event.epochs else passed)
            left += (1 - done) * typical.get(key[0], usual)
        return left / self.processes

    def headline(self) -> str:
        """The progress in one line."""
        words = [f"{len(self.finished)} of {len(self.cells)} cells done"]
        if self.errors:
            words.append(f"{len(self.errors)} could not be run")
        left = self.seconds_left()
        if left:
            words.append(f"about {in_words(left)} left")
        return ", ".join(words)

    def place(self, row: str, column: str) -> str:
        """An entry of the live table: the mean accuracy, with dots while seeds are missing, or how many are done."""
        keys = [key for key in self.cells if key[:2] == (row, column)]
        found = [self.finished[key] for key in keys if key in self.finished]
        if not keys:
            return ""
        dots = "" if len(found) == len(keys) else "…"
        values = [each.last[MEASURE] for each in found if each.state == "done" and MEASURE in each.last]
        if values:
            return f"{100 * statistics.fmean(values):.1f}{dots}"
        return f"fail{dots}" if any(each.state == "failed" for each in found) else f"{len(found)}/{len(keys)}"


class Lines:
    """One line per finished cell, for logs and pipes."""

    def __init__(self, standing: Standing, *, quiet: bool = False) -> None:
        self.standing, self.quiet = standing, quiet

    def __enter__(self) -> Callable[[Event], None]:
        return self.watch

    def __exit__(self, *_: object) -> None: ...

    def watch(self, event: Event) -> None:
        self.standing.update(event)
        if not self.quiet and (event.finished is not None or event.error is not None):
            print(f"{outcome(event)}  ({self.standing.headline()})", file=sys.stderr, flush=True)


class Table:
    """A live table of rows × columns, with the running cells below."""

    def __init__(self, grid: Grid, standing: Standing, console: Any = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self.grid, self.standing = grid, standing
        shown = console or Console(stderr=True)
        self.live = Live(console=shown, get_renderable=self.picture, refresh_per_second=2, transient=True)

    def __enter__(self) -> Callable[[Event], None]:
        self.live.start()
        return self.standing.update

    def __exit__(self, *_: object) -> None:
        self.live.stop()
        self.live.console.print(self.picture())

    def picture(self) -> Any:
        """The current table."""
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        standing = self.standing
        rows = [axis.name for axis in self.grid.rows if any(key[0] == axis.name for key in standing.cells)]
        columns = [axis.name for axis in self.grid.columns if any(key[1] == axis.name for key in standing.cells)]
        table = RichTable(title=self.grid.title, title_justify="left", pad_edge=False, box=None)
        table.add_column("", no_wrap=True)
        for column in columns:
            table.add_column(Text(column), justify="right", overflow="fold")
        for row in rows:
            table.add_row(Text(row), *(Text(standing.place(row, column)) for column in columns))
        running = [
            f"  {row}, {column}, seed {seed}: {_epoch(event)}"
            for (row, column, seed), (event, _) in standing.running.items()
        ]
        return Group(table, Text("\n".join([standing.headline(), *running])))


def outcome(event: Event) -> str:
    """The outcome of a cell in one line."""
    place = f"{event.cell.row}, {event.cell.column}, seed {event.cell.seed}"
    if event.finished is None:
        return f"{place}: could not be run: {event.error}"
    if event.finished.state == "failed":
        return f"{place}: fail (training diverged)"
    value = event.finished.last.get(MEASURE)
    took = in_words(event.finished.seconds)
    return f"{place}: done in {took}" if value is None else f"{place}: {100 * value:.1f} % in {took}"


def _epoch(event: Event) -> str:
    return f"epoch {min(event.epoch + 1, event.epochs)} of {event.epochs}" if event.epochs else "starting"

"""The tables of networks that memorise, without gaps: of all rows, of those that have more seeds, of later methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from mslg.sweeps.grid import Axis
from mslg.sweeps.ledger import Finished
from mslg.sweeps.table import Difference, difference

from .sweep import Sweep

PLAIN, STOPPED = "cross-entropy", "cross-entropy, stopped early"
OURS = ("default", "default, label learning")
FORMS = ("mslg published", "mslg released", "mslg")
ABLATED = "released, "  # rows that change one thing begin with it


class Tables(NamedTuple):
    """Tables, and the cells that differences are taken from: those of a pair of rows over all seeds that both have."""

    table: Sweep  # all rows but later methods, with the seeds that all of them have
    leading: Sweep  # the rows and columns that have more seeds, if any
    later: Sweep  # later methods, beside ours, where they have been run
    whole: Sweep

    @property
    def columns(self) -> list[str]:
        return self.table.columns

    @property
    def once(self) -> bool:
        """Whether there is one seed, so that there are no intervals."""
        return len(self.table.grid.seeds) == 1

    def noisy(self, kind: str) -> list[str]:
        """The columns whose noise begins with these letters."""
        noises = {name: self.table.noise(name) for name in self.columns}
        return [name for name, (noise, rate) in noises.items() if noise.startswith(kind) and rate > 0]

    def values(self, row: str, column: str) -> dict[int, float]:
        """Test accuracy by seed; nothing where training diverged."""
        place = self.whole.summary().places.get((row, column))
        return {} if place is None or place.failed else place.values

    def minus(self, ours: str, theirs: str) -> dict[str, Difference]:
        """A row minus another by column."""
        found = {name: difference(self.values(ours, name), self.values(theirs, name)) for name in self.columns}
        return {name: each for name, each in found.items() if each is not None}

    def best(self, column: str, others: Sequence[str]) -> str | None:
        """The best of these rows without extra knowledge, over the seeds of the table."""
        seeds, means = self.table.grid.seeds, {}
        for row in self.whole.grid.rows:
            values = self.values(row.name, column)
            if row.name in others and row.knows is None and all(seed in values for seed in seeds):
                means[row.name] = fmean(values[seed] for seed in seeds)
        return max(means, key=lambda row: means[row]) if means else None

    def minus_best(self, ours: str, others: Sequence[str]) -> dict[str, tuple[str, Difference]]:
        """By column, the best of other rows, and a row minus it."""
        best = {name: self.best(name, others) for name in self.columns}
        found = {
            name: (row, difference(self.values(ours, name), self.values(row, name)))
            for name, row in best.items()
            if row is not None
        }
        return {name: (row, between) for name, (row, between) in found.items() if between is not None}

    @property
    def rivals(self) -> list[str]:
        """All rows but ours; later methods once they have as many seeds."""
        later = self.later.rows if len(self.later.grid.seeds) == len(self.table.grid.seeds) else []
        return [row for row in dict.fromkeys((*self.table.rows, *later)) if row not in OURS]


def tables(whole: Sweep) -> Tables:
    """Of the rows that change nothing, in the columns in which more than memorising was looked at."""
    rows = [row for row in whole.rows if not row.startswith(ABLATED)]
    compared = {column for row, column, _ in whole.results if row != PLAIN}
    every = with_stopped(whole.only(rows, [name for name in whole.columns if name in compared]))
    needed = {row.name for row in every.grid.rows if row.paper or row.name in OURS}  # or the best rival may be missing
    table = every.finished_part(least=2)
    if not needed <= set(table.rows):  # fewer seeds, but all rows
        table = replace(every, grid=replace(every.grid, seeds=every.grid.seeds[:1])).finished_part(least=2)
    leading = every.only(table.rows).finished_part(least=2, seeds=len(table.grid.seeds) + 1)
    return Tables(table, leading, _later(every, table), every)


def whole_table(sweep: Sweep) -> Tables:
    """Of a sweep that has all its seeds everywhere."""
    none = sweep.only([], [])
    return Tables(sweep, none, none, sweep)


def _later(every: Sweep, table: Sweep) -> Sweep:
    """The rows that are in fewer columns than the table, beside ours."""
    later = every.only([row for row in every.rows if row not in table.rows]).finished_part()
    if not later.results or not set(OURS) <= set(table.rows):
        return every.only([], [])
    part = every.only([*OURS, *later.rows], [name for name in later.columns if name in table.columns])
    seeds = tuple(seed for seed in later.grid.seeds if seed in table.grid.seeds)
    wanted = {key: cell for key, cell in every.results.items() if key[2] in seeds}
    return replace(part, grid=replace(part.grid, seeds=seeds), results=wanted)


def with_stopped(sweep: Sweep) -> Sweep:
    """With cross entropy in the epoch that is best on the clean samples held out for selection: a control that costs no
    run of its own."""
    plain = next((row for row in sweep.grid.rows if row.name == PLAIN), None)
    cells = [_stopped(cell) for cell in sweep.results.values() if cell.row == PLAIN]
    if plain is None or not cells:
        return sweep
    rows = (*sweep.grid.rows, Axis(STOPPED, plain.changes))
    return replace(
        sweep, grid=replace(sweep.grid, rows=rows), results={**sweep.results, **{cell.key: cell for cell in cells}}
    )


def _stopped(cell: Finished) -> Finished:
    return replace(cell, row=STOPPED, last={**cell.last, **cell.best}, curves={})

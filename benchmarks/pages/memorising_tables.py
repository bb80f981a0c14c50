"""The complete tables of networks that memorise: of several seeds, and of one seed in more columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from mslg.sweeps.grid import Axis
from mslg.sweeps.ledger import Finished
from mslg.sweeps.table import Difference

from .sweep import Sweep

PLAIN, STOPPED = "cross-entropy", "cross-entropy, stopped early"
OURS = ("default", "default, label learning")
FORMS = ("mslg published", "mslg released", "mslg")
ABLATED = "released, "  # rows that change one thing begin with it
SEVERAL = 2  # seeds, at least, for intervals


class Tables(NamedTuple):
    """Two tables without gaps."""

    several: Sweep
    wide: Sweep  # of the first seed

    @property
    def columns(self) -> list[str]:
        """Of either."""
        return self.several.columns + [name for name in self.wide.columns if name not in self.several.columns]

    def noisy(self, kind: str) -> list[str]:
        """The columns whose noise begins with these letters."""
        noises = {name: self.of(name).noise(name) for name in self.columns}
        return [name for name, (noise, rate) in noises.items() if noise.startswith(kind) and rate > 0]

    def of(self, column: str) -> Sweep:
        """The one that says more about a column."""
        return self.several if column in self.several.columns else self.wide

    def once(self, columns: Sequence[str]) -> list[str]:
        """Those of these columns that have one seed."""
        return [name for name in columns if len(self.of(name).grid.seeds) < SEVERAL]

    def minus(self, ours: str, theirs: str) -> dict[str, Difference]:
        """A row minus another by column."""
        found = {name: self.of(name).minus(ours, theirs).get(name) for name in self.columns}
        return {name: each for name, each in found.items() if each is not None}

    def minus_best(self, ours: str, others: Sequence[str]) -> dict[str, tuple[str, Difference]]:
        """By column, the best of other rows, and a row minus it."""
        found = {}
        for name in self.columns:
            best = self.of(name).only(others, [name]).leaders().get(name)
            between = None if best is None else self.of(name).minus(ours, best).get(name)
            if best is not None and between is not None:
                found[name] = (best, between)
        return found


def tables(whole: Sweep) -> Tables:
    """Of the rows that change nothing, in the columns in which more than memorising was looked at."""
    rows = [row for row in whole.rows if not row.startswith(ABLATED)]
    compared = {column for row, column, _ in whole.results if row != PLAIN}
    part = with_stopped(whole.only(rows, [name for name in whole.columns if name in compared]))
    first = replace(part, grid=replace(part.grid, seeds=part.grid.seeds[:1]))
    several, wide = part.finished_part(least=2, seeds=SEVERAL), first.finished_part(least=2)
    needed = {row.name for row in wide.grid.rows if row.paper or row.name in OURS}  # or the best rival may be missing
    return Tables(several if needed <= set(several.rows) else several.only([], []), wide)


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

"""A committed sweep as the pages need it: its numbers, the differences between its rows, and where they come from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mslg.sweeps.curves import colour_numbers, draw, panels
from mslg.sweeps.grid import Axis, Grid
from mslg.sweeps.ledger import Finished
from mslg.sweeps.paper import paper_numbers
from mslg.sweeps.run import open_sweep
from mslg.sweeps.table import Difference, Key, Place, Summary, difference, summary

from .words import NOTHING, number, prose, table, thousands

TEST, TABLE, SUGGESTED, GIVEN = "test/accuracy", "labels/accuracy", "suggested/accuracy", "given/accuracy"


@dataclass(frozen=True)
class Sweep:
    """A recipe and the finished cells that belong to it."""

    name: str
    grid: Grid
    results: dict[Key, Finished]
    _known: dict[str, Summary] = field(init=False, repr=False, compare=False, default_factory=dict)  # by measure

    @property
    def rows(self) -> list[str]:
        return [row.name for row in self.grid.rows]

    @property
    def columns(self) -> list[str]:
        return [column.name for column in self.grid.columns]

    def summary(self, measure: str = TEST) -> Summary:
        """Its table, empty where no cell has the measure."""
        if measure not in self._known:
            known = {key: cell for key, cell in self.results.items() if cell.state == "failed" or measure in cell.last}
            paper = paper_numbers(self.grid.paper) if self.grid.paper is not None and measure == TEST else None
            self._known[measure] = summary(self.grid, known, measure, paper=paper)
        return self._known[measure]

    def only(self, rows: Sequence[str], columns: Sequence[str] | None = None) -> Sweep:
        """A part of it."""
        chosen = tuple(row for row in self.grid.rows if row.name in rows)
        across = tuple(column for column in self.grid.columns if columns is None or column.name in columns)
        return replace(self, grid=replace(self.grid, rows=chosen, columns=across))

    def finished_part(self, least: int = 1, seeds: int = 1) -> Sweep:
        """The largest complete table: the first columns and the first seeds, at least so many, and the rows that have
        all of these. Rows without one of them are left out; empty if fewer than `least` are complete in the first
        column."""
        best: tuple[int, list[str], list[str], tuple[int, ...]] = (0, [], [], self.grid.seeds[:1])
        for first in (self.grid.seeds[:count] for count in range(seeds, len(self.grid.seeds) + 1)):
            for columns in (self.columns[:count] for count in range(1, len(self.columns) + 1)):
                rows = [
                    row for row in self.rows if all((row, c, seed) in self.results for c in columns for seed in first)
                ]
                size = len(rows) * len(columns) * len(first)
                if len(rows) >= least and size > best[0]:
                    best = (size, rows, columns, first)
        part = self.only(best[1], best[2])
        wanted = {(row, column, seed) for row in best[1] for column in best[2] for seed in best[3]}
        results = {key: cell for key, cell in self.results.items() if key in wanted}
        return replace(part, grid=replace(part.grid, seeds=best[3]), results=results)

    def leaders(self) -> dict[str, str]:
        """The best row of each column; of equals the first."""
        best = self.summary().best
        rows = {column: [row for row in self.rows if (row, column) in best] for column in self.columns}
        return {column: names[0] for column, names in rows.items() if names}

    def whole(self, row: str, column: str, measure: str = TEST) -> Place | None:
        """A place of which every seed is finished and none diverged."""
        place = self.summary(measure).places.get((row, column))
        return place if place is not None and place.complete and not place.failed else None

    def minus(
        self, ours: str, theirs: str, measure: str = TEST, their_measure: str | None = None
    ) -> dict[str, Difference]:
        """A row minus another by column, seed by seed, where both have all their seeds."""
        first, second = self.summary(measure).places, self.summary(their_measure or measure).places
        found = {}
        for column in self.columns:
            places = [first.get((ours, column)), second.get((theirs, column))]
            whole = [place.values for place in places if place is not None and place.complete and not place.failed]
            if len(whole) == 2 and (between := difference(whole[0], whole[1])) is not None:
                found[column] = between
        return found

    def method(self, row: Axis) -> str:
        """The name of a row's method."""
        settings = self.grid.cell(row, self.grid.columns[0], self.grid.seeds[0]).settings
        return str(settings["method"].get("name", "mslg"))

    def noise(self, column: str) -> tuple[str, float]:
        """A column's kind of noise and its rate."""
        axis = next(each for each in self.grid.columns if each.name == column)
        data = self.grid.cell(self.grid.rows[0], axis, self.grid.seeds[0]).settings["data"]
        return str(data.get("noise")), float(data.get("rate") or 0.0)

    def numbers(self, *, head: str = "", measure: str = TEST, link: bool = True) -> str:
        """The table of all its rows and columns, the best of a column bold, with footnote marks."""
        found = self.summary(measure)
        lines = []
        for row in self.grid.rows:
            label = f"[{row.name}](../methods/{self.method(row)}.md)" if link else row.name
            label += "" if row.knows is None else f" {self.marks[row.knows]}"
            places = [(row.name, column) for column in self.columns]
            lines.append([label, *(number(found.places[key], best=key in found.best) for key in places)])
        return table([head, *self.columns], lines)

    @property
    def marks(self) -> dict[str, str]:
        """A footnote mark for each kind of knowledge beyond the rules."""
        known = dict.fromkeys(row.knows for row in self.grid.rows if row.knows is not None)
        return dict(zip(known, ("†", "‡", "§", "¶"), strict=False))

    @property
    def notes(self) -> str:
        """How to read its tables."""
        seeds = len(self.grid.seeds)
        spread = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
        about = f"Test accuracy in percent in the last epoch, {spread};"
        words = [f"{about} bold: the best of a column."]
        if self.grid.paper is not None:
            words.append("In parentheses the paper's number, of its own data, network and protocol.")
        words += [
            f"{mark} is told {knowledge}, which nobody knows in practice: never counted as best."
            for knowledge, mark in self.marks.items()
        ]
        if 1 < len(self.grid.seeds) < 4:
            words.append(
                f"With {len(self.grid.seeds)} seeds intervals are wide: what is not significant may still be there."
            )
        if any(not place.complete for place in self.summary().places.values()):
            words.append(f"[n/{len(self.grid.seeds)}]: only n seeds are finished; {NOTHING}: none.")
        if any(place.failed for place in self.summary().places.values()):
            words.append("fail: training diverged.")
        return "\n".join(words)

    @property
    def header(self) -> str:
        """Protocol, command, versions and commits."""
        recipe, folder = f"benchmarks/recipes/{self.name}.toml", f"benchmarks/results/{self.name}"
        parts = [
            f"Protocol *{self.grid.protocol}*." if self.grid.protocol else "",
            f"```sh\nmslg sweep {recipe} --root DATA -o {folder}\npython benchmarks/results_pages.py  # this page\n```",
            prose(f"The recipe has all settings, `{folder}/cells.jsonl` the single runs."),
            self.provenance,
        ]
        return "\n\n".join(part for part in parts if part)

    def picture(self, path: Path, kind: str, title: str) -> bool:
        """Draw it, or remove an old one where there is nothing to draw."""
        try:
            found = panels(self.grid, self.results, kind)
        except ValueError:  # clean sets of one size only
            found = []
        if not found:
            path.unlink(missing_ok=True)
            return False
        draw(found, path, title=title, colours=colour_numbers(self.grid), kind=kind)
        return True

    @property
    def provenance(self) -> str:
        """Versions and commits of its cells."""
        cells = self.results.values()
        if not cells:
            return ""
        kinds = Counter(json.dumps(cell.versions, sort_keys=True) for cell in cells)
        versions = [
            ", ".join(f"{name} {version}" for name, version in json.loads(kind).items()) + _of(count, len(cells))
            for kind, count in sorted(kinds.items())
        ]
        commits = Counter(cell.commit or "unknown" for cell in cells)
        names = [f"`{commit}`{_of(count, len(cells))}" for commit, count in sorted(commits.items())]
        dirty = " (+: with changes that were not committed)" if any(name.endswith("+") for name in commits) else ""
        return prose(f"Versions: {'; '.join(versions)}.", f"Commits: {', '.join(names)}{dirty}.")


def read(name: str, results: Path, recipes: Path) -> Sweep:
    """A sweep by name; one that was never started has its recipe and no cells."""
    folder = results / name
    grid, cells = open_sweep(folder, None if (folder / "recipe.toml").exists() else str(recipes / f"{name}.toml"))
    return Sweep(name, grid, cells)


def _of(count: int, cells: int) -> str:
    return "" if count == cells else f" ({thousands(count)} cells)"

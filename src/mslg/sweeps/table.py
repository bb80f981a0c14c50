"""The numbers of a sweep's table: mean and spread over seeds, and differences between rows seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..registry import expect_name, unknown
from .grid import Grid
from .ledger import KEPT, Finished

Key = tuple[str, str, int]
Paper = Mapping[tuple[str, str], tuple[float | None, float | None]]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Place:
    """A row and a column: the measure of each finished seed in percent, and the paper's mean and deviation."""

    values: dict[int, float]
    failed: int  # seeds whose training diverged
    seeds: int  # how many were asked for
    paper: tuple[float | None, float | None] | None = None  # a mean of None: the method failed there
    without: int = 0  # seeds that are finished and have no such measure

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values.values()) if self.values else None

    @property
    def sd(self) -> float | None:
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def finished(self) -> int:
        return len(self.values) + self.failed + self.without

    @property
    def complete(self) -> bool:
        return len(self.values) + self.failed == self.seeds


@dataclass(frozen=True)
class Difference:
    """A row minus the reference in one column, over the seeds that both have; the interval needs two of them."""

    seeds: int
    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Summary:
    """A whole table."""

    measure: str
    best_epoch: bool  # of the epoch that was best on the select part, instead of the last
    places: dict[tuple[str, str], Place]
    best: frozenset[tuple[str, str]]  # the highest mean of all seeds in each column, rows with extra knowledge left out


def summary(
    grid: Grid,
    results: Mapping[Key, Finished],
    measure: str = "test/accuracy",
    *,
    best_epoch: bool = False,
    paper: Paper | None = None,
) -> Summary:
    """Put the finished cells together."""
    expect_name("measure", measure, KEPT)
    _refuse_nothing(results, measure, best_epoch)
    places = {}
    for row in grid.rows:
        for column in grid.columns:
            found = {seed: results[key] for seed in grid.seeds if (key := (row.name, column.name, seed)) in results}
            measured = {seed: _value(each, measure, best_epoch) for seed, each in found.items()}
            values = {seed: value for seed, value in measured.items() if value is not None}
            failed = sum(each.state == "failed" for each in found.values())
            places[row.name, column.name] = Place(
                values,
                failed,
                len(grid.seeds),
                None if paper is None else paper.get((row.paper or "", column.paper or "")),
                len(found) - len(values) - failed,
            )
    return Summary(measure, best_epoch, places, frozenset(_best(grid, places)))


def paired(
    grid: Grid,
    results: Mapping[Key, Finished],
    against: str,
    measure: str = "test/accuracy",
    *,
    best_epoch: bool = False,
) -> dict[tuple[str, str], Difference]:
    """Every other row minus the one named: the same seed has the same data, noise and clean set, so the difference is
    taken seed by seed, and most of what varies between seeds falls out of it."""
    expect_name("row", against, [row.name for row in grid.rows])
    places = summary(grid, results, measure, best_epoch=best_epoch).places
    found = {}
    for (row, column), place in places.items():
        between = difference(place.values, places[against, column].values)
        if row != against and between is not None:
            found[row, column] = between
    return found


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """One measure minus another, seed by seed over the seeds that both have; None where they share none."""
    values = [value - theirs[seed] for seed, value in ours.items() if seed in theirs]
    return Difference(len(values), statistics.fmean(values), *interval(values)) if values else None


def across(grid: Grid, found: Summary, row: str) -> float | None:
    """The mean of a row's means over all columns; None until every column has all its seeds."""
    places = [found.places[row, column.name] for column in grid.columns]
    means = [place.mean for place in places if place.mean is not None and place.complete and not place.failed]
    return statistics.fmean(means) if len(means) == len(places) else None


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Student's interval of the mean; none for a single value."""
    if len(values) < 2:
        return None, None
    from scipy.stats import t  # type: ignore[import-untyped]

    mean, error = statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * error
    return mean - half, mean + half


def _value(cell: Finished, measure: str, best_epoch: bool) -> float | None:
    value = (cell.best if best_epoch else cell.last).get(measure)
    return None if value is None or cell.state != "done" else 100 * value


def _best(grid: Grid, places: Mapping[tuple[str, str], Place]) -> list[tuple[str, str]]:
    found = []
    for column in grid.columns:
        fair = {(row.name, column.name): places[row.name, column.name] for row in grid.rows if row.knows is None}
        means = {
            key: place.mean
            for key, place in fair.items()
            if place.mean is not None and len(place.values) == place.seeds
        }
        found += [key for key, mean in means.items() if mean == max(means.values())]
    return found


def _refuse_nothing(results: Mapping[Key, Finished], measure: str, best_epoch: bool) -> None:
    """Say so when the measure is nowhere, instead of showing an empty table."""
    done = [cell.best if best_epoch else cell.last for cell in results.values() if cell.state == "done"]
    if not done or any(measure in values for values in done):
        return
    known: dict[str, Any] = {name: None for values in done for name in values}
    if best_epoch and not known:
        raise ValueError(
            "no run has a best epoch: none has clean samples to choose it by (200 or more are divided up); "
            "leave --best out"
        )
    raise unknown("measure in this sweep", measure, known)

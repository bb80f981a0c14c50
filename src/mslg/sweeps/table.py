"""The numbers of a sweep's table: mean and standard deviation over seeds, and paired differences between rows."""

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
    """A row in a column: the metric of each finished seed, in percent, and the mean and deviation in the paper."""

    values: dict[int, float]
    failed: int  # seeds whose training diverged
    seeds: int  # requested
    paper: tuple[float | None, float | None] | None = None  # a mean of None: the method failed
    without: int = 0  # finished seeds that lack the metric

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
    """A row minus the reference in one column, over the seeds that both have. An interval needs two of them."""

    seeds: int
    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Summary:
    """All numbers of a table."""

    measure: str
    best_epoch: bool  # instead of the last: the epoch that was best on the select part
    places: dict[tuple[str, str], Place]
    best: frozenset[tuple[str, str]]  # the highest mean per column, without rows that know more


def summary(
    grid: Grid,
    results: Mapping[Key, Finished],
    measure: str = "test/accuracy",
    *,
    best_epoch: bool = False,
    paper: Paper | None = None,
) -> Summary:
    """Summarize the results, one entry per row and column."""
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
    """Every other row minus the reference row. Runs with the same seed share data, noise and clean set, so differences
    are paired by seed, which removes most of the variance between seeds."""
    expect_name("row", against, [row.name for row in grid.rows])
    places = summary(grid, results, measure, best_epoch=best_epoch).places
    found = {}
    for (row, column), place in places.items():
        between = difference(place.values, places[against, column].values)
        if row != against and between is not None:
            found[row, column] = between
    return found


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Paired difference over the seeds that both have; None if there are none."""
    values = [value - theirs[seed] for seed, value in ours.items() if seed in theirs]
    return Difference(len(values), statistics.fmean(values), *interval(values)) if values else None


def across(grid: Grid, found: Summary, row: str) -> float | None:
    """The mean of a row over all columns; None until every column has all its seeds."""
    places = [found.places[row, column.name] for column in grid.columns]
    means = [place.mean for place in places if place.mean is not None and place.complete and not place.failed]
    return statistics.fmean(means) if len(means) == len(places) else None


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Student's t interval of the mean; (None, None) for a single value."""
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
    """Raise if no result has the metric, rather than show an empty table."""
    done = [cell.best if best_epoch else cell.last for cell in results.values() if cell.state == "done"]
    if not done or any(measure in values for values in done):
        return
    known: dict[str, Any] = {name: None for values in done for name in values}
    if best_epoch and not known:
        raise ValueError(
            "no run has a best epoch, because none holds out clean samples to select it (this takes 200 or more); "
            "leave out --best"
        )
    raise unknown("measure in this sweep", measure, known)

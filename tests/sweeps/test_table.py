"""The numbers of a table, each computed a second time with loops; and what they look like."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from mslg.sweeps.grid import Grid
from mslg.sweeps.render import FORMATS, Shown, text
from mslg.sweeps.table import interval, paired, summary
from tests.support.small_sweep import RECIPE, grid_of, made

ORACLE = '[rows.told]\nknows = "the noise rate"\nmethod = { name = "co-teaching" }\n'
PAPER = {("ours", "u40"): (74.0, 0.25), ("ours", "p20"): (None, None), ("theirs", "u40"): (70.0, None)}


def accuracy(row: str, column: str, seed: int) -> float | None:
    if (row, column) == ("mslg", "pair-20"):
        return None if seed == 3 else 0.61
    base = {"cross entropy": 0.7, "mslg": 0.72, "told": 0.9}[row] + (0.01 if column == "pair-20" else 0)
    return base + 0.01 * math.sin(3 * seed) + 0.002 * math.sin(len(row) * seed)


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    recipe = RECIPE.replace("[0, 1]", "[0, 1, 2, 3]").replace("[rows.mslg.", "[rows.mslg]\npaper = 'ours'\n[rows.mslg.")
    recipe = recipe.replace("[columns.uniform-40.", "[columns.uniform-40]\npaper = 'u40'\n[columns.uniform-40.")
    recipe = recipe.replace("[columns.pair-20.", "[columns.pair-20]\npaper = 'p20'\n[columns.pair-20.")
    return grid_of(tmp_path, recipe + ORACLE)


def test_means_and_deviations(grid: Grid) -> None:
    found = summary(grid, made(grid, accuracy), paper=PAPER)
    for (row, column), place in found.places.items():
        values = [accuracy(row, column, seed) for seed in range(4)]
        known = [100 * value for value in values if value is not None]
        mean = sum(known) / len(known)
        assert place.mean == pytest.approx(mean)
        squares = 0.0
        for value in known:
            squares += (value - mean) ** 2
        assert place.sd == pytest.approx((squares / (len(known) - 1)) ** 0.5, abs=1e-9)
        assert place.failed == values.count(None)
        assert place.complete
    assert found.best == {("mslg", "uniform-40"), ("cross entropy", "pair-20")}, "who was told more is never best"
    assert found.places["mslg", "uniform-40"].paper == (74.0, 0.25)
    assert found.places["told", "uniform-40"].paper is None


def test_differences_seed_by_seed(grid: Grid) -> None:
    results = made(grid, accuracy)
    del results["cross entropy", "uniform-40", 2]
    found = paired(grid, results, "cross entropy")
    assert set(found) == {(row, column) for row in ("mslg", "told") for column in ("uniform-40", "pair-20")}
    for (row, column), difference in found.items():
        differences = []
        for seed in range(4):
            ours, theirs = accuracy(row, column, seed), accuracy("cross entropy", column, seed)
            if ours is not None and theirs is not None and ("cross entropy", column, seed) in results:
                differences.append(100 * (ours - theirs))
        assert difference.seeds == len(differences) == 3 if (row, column) != ("told", "pair-20") else 4
        assert difference.mean == pytest.approx(np.mean(differences))
        low, high = stats.t.interval(0.95, len(differences) - 1, np.mean(differences), stats.sem(differences))
        assert difference.low == pytest.approx(low)
        assert difference.high == pytest.approx(high)
        test = stats.ttest_1samp(differences, 0)
        assert difference.significant == (test.pvalue < 0.05)
    with pytest.raises(ValueError, match=r"unknown row 'cross'. Did you mean 'cross entropy'"):
        paired(grid, results, "cross")


def test_one_seed_has_no_interval(grid: Grid) -> None:
    results = {key: each for key, each in made(grid, accuracy).items() if key[2] == 0}
    assert interval([1.0]) == (None, None)
    found = paired(grid, results, "cross entropy")["mslg", "uniform-40"]
    assert (found.seeds, found.low, found.significant) == (1, None, False)
    place = summary(grid, results).places["mslg", "uniform-40"]
    assert place.sd is None
    assert not place.complete


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        low, high = interval(list(random.normal(0.3, 2.0, size=4)))
        assert low is not None
        assert high is not None
        hits += low < 0.3 < high
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)


def test_a_measure_that_nobody_has_is_an_error(grid: Grid) -> None:
    results = made(grid, accuracy)
    with pytest.raises(ValueError, match=r"unknown measure 'test/acuracy'. Did you mean 'test/accuracy'"):
        summary(grid, results, "test/acuracy")
    with pytest.raises(ValueError, match=r"unknown measure in this sweep 'labels/accuracy'.* Allowed: test/accuracy"):
        summary(grid, results, "labels/accuracy")
    with pytest.raises(ValueError, match="no run has a best epoch"):
        summary(grid, results, best_epoch=True)
    assert summary(grid, {}).places["mslg", "pair-20"].mean is None, "a sweep that has only begun has a table too"


def plain(row: str, column: str, seed: int) -> float | None:
    """Numbers for which a head is enough."""
    if (row, column) == ("mslg", "pair-20"):
        return None if seed == 3 else 0.61
    other = 0.7 + 0.01 * seed + (0.01 if column == "pair-20" else 0)
    return other + {"cross entropy": 0.0, "mslg": 0.02 + 0.004 * (seed % 2), "told": 0.2}[row]


def shown(grid: Grid) -> Shown:
    results = made(grid, plain)
    del results["told", "pair-20", 0]
    for seed in range(4):
        del results["told", "uniform-40", seed]
    table = summary(grid, results, paper=PAPER)
    return Shown(grid, table, "cross entropy", paired(grid, results, "cross entropy"))


TEXT = """\
Two methods on two noises.
protocol clean: 100 samples

                             uniform-40                     pair-20
cross entropy                71.5 ± 1.3                 72.5 ± 1.3*
mslg           73.7 ± 1.4* [74.0 ± 0.2]  61.0 ± 0.0 (1 fail) [fail]
told †                                –            93.0 ± 1.0 (3/4)

difference to cross entropy, paired by seed, with 95 % intervals

                uniform-40                      pair-20
mslg    +2.2* [+1.8, +2.6]   −11.0* [−13.5, −8.5] (3/4)
told †                   –  +20.0* [+20.0, +20.0] (3/4)

accuracy on the test set in percent, the last epoch: mean ± standard deviation over 4 seeds; *: best
[…]: the paper's number for the same noise, with its own data, networks and protocol
(n/4): only n seeds are finished, never marked as best; –: none
fail: training diverged
†: knows the noise rate; never marked as best
differences in percentage points; *: the interval excludes zero
(n/4) after a difference: over the n seeds that both rows have
"""


def test_as_text(grid: Grid) -> None:
    assert text(shown(grid)) == TEXT
    narrow = text(shown(grid), width=50)
    assert max(len(line) for line in narrow.splitlines()[:12]) <= 50, "columns that do not fit go below"
    assert narrow.count("cross entropy  ") == 2


def test_as_markdown(grid: Grid) -> None:
    lines = FORMATS["markdown"](shown(grid)).splitlines()
    assert lines[0] == "**Two methods on two noises.**"
    assert "| mslg | **73.7 ± 1.4** [74.0 ± 0.2] | 61.0 ± 0.0 (1 fail) [fail] |" in lines
    assert all(line.count("|") == 4 for line in lines if line.startswith("|"))


def test_as_latex(grid: Grid) -> None:
    found = FORMATS["latex"](shown(grid))
    assert r"mslg & \textbf{73.7 $\pm$ 1.4} [74.0 $\pm$ 0.2] & 61.0 $\pm$ 0.0 (1 fail) [fail] \\" in found
    assert r"told $^\dagger$ & -- & 93.0 $\pm$ 1.0 (3/4) \\" in found
    assert found.count(r"\begin{tabular}{lrr}") == found.count(r"\end{tabular}") == 2


def test_as_csv_and_json(grid: Grid) -> None:
    whole = shown(grid)
    lines = list(csv.DictReader(io.StringIO(FORMATS["csv"](whole))))
    content = json.loads(FORMATS["json"](whole))
    assert content["against"] == "cross entropy"
    assert len(lines) == len(content["cells"]) == 6
    for line, cell in zip(lines, content["cells"], strict=True):
        place = whole.summary.places[cell["row"], cell["column"]]
        assert line["row"] == cell["row"]
        assert line["mean"] == ("" if cell["mean"] is None else str(cell["mean"]))
        assert cell["mean"] == (None if place.mean is None else round(place.mean, 4))
        assert cell["values"] == {str(seed): round(value, 4) for seed, value in place.values.items()}
    broken = next(cell for cell in content["cells"] if (cell["row"], cell["column"]) == ("mslg", "pair-20"))
    assert broken["paper_failed"]
    assert broken["failed"] == 1
    assert broken["significant"]


def test_only_a_place_with_all_its_seeds_is_best(grid: Grid) -> None:
    results = made(grid, plain)
    del results["mslg", "uniform-40", 3]
    assert summary(grid, results).best == {("cross entropy", "uniform-40"), ("cross entropy", "pair-20")}


def test_a_measure_that_a_row_lacks_is_not_a_cell_that_is_missing(grid: Grid) -> None:
    results = made(grid, lambda *_: 0.8)
    for key, each in results.items():
        if key[0] == "mslg":
            results[key] = replace(each, last={"labels/accuracy": 0.9})
    del results["told", "pair-20", 0]
    found = summary(grid, results, "labels/accuracy")
    assert (found.places["cross entropy", "pair-20"].without, found.places["mslg", "pair-20"].without) == (4, 0)
    lines = text(Shown(replace(grid, note="A note."), found, None, {})).splitlines()
    assert lines[4].split() == ["cross", "entropy", "n/a", "n/a"]
    assert lines[6].split() == ["told", "†", "n/a", "n/a", "(3/4)"]
    assert "n/a: finished, but without this metric" in lines
    assert "A note." in lines

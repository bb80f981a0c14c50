"""What a person sees of a sweep under way."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from mslg.sweeps.pool import Event
from mslg.sweeps.progress import Lines, Standing, Table
from tests.support.small_sweep import grid_of, made


def test_the_time_left_goes_by_what_the_same_row_took(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    cells = grid.cells()
    seconds = {"cross entropy": 100.0, "mslg": 300.0}
    results = {key: replace(each, seconds=seconds[key[0]]) for key, each in made(grid, lambda *_: 0.5).items()}
    standing = Standing(cells, {}, processes=2)
    assert standing.seconds_left() is None
    for cell in cells[:3]:
        standing.update(Event(cell, finished=results[cell.key]))
    standing.update(Event(cells[3], 5, 10))  # half of a cell of 300 s
    standing.update(Event(cells[4], error="no"))
    expected = 0.0
    for cell in cells[5:]:
        expected += seconds[cell.row]
    assert standing.seconds_left() == pytest.approx((150 + expected) / 2)
    assert standing.headline() == "3 of 8 cells done, 1 could not be run, about 7 min left"


def test_lines_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = grid_of(tmp_path)
    cells, results = grid.cells(), made(grid, lambda row, *_: None if row == "mslg" else 0.625)
    with Lines(Standing(cells, {}, 2)) as watch:
        watch(Event(cells[0], 1, 2))
        watch(Event(cells[0], finished=results[cells[0].key]))
        watch(Event(cells[1], finished=results[cells[1].key]))
        watch(Event(cells[2], error="too few"))
    assert capsys.readouterr().err.splitlines() == [
        "cross entropy, uniform-40, seed 0: 62.5 % in 0 s  (1 of 8 cells done)",
        "mslg, uniform-40, seed 0: fail (training diverged)  (2 of 8 cells done)",
        "cross entropy, pair-20, seed 0: could not be run: too few  (2 of 8 cells done, 1 could not be run)",
    ]
    into = io.StringIO()
    with Table(grid, Standing(cells, results, 2), Console(file=into, force_terminal=False, width=80)) as watch:
        watch(Event(cells[0], 1, 2))
        watch(Event(cells[1]))
    shown = [line.strip() for line in into.getvalue().splitlines()]
    assert "cross entropy        62.5     62.5" in shown
    assert "mslg                 fail     fail" in shown
    assert "cross entropy, uniform-40, seed 0: epoch 2 of 2" in shown
    assert "mslg, uniform-40, seed 0: starting" in shown
    half = Standing(cells, {cells[0].key: results[cells[0].key]}, 2)
    assert [half.place("cross entropy", column) for column in ("uniform-40", "pair-20")] == ["62.5…", "0/2"]

"""The file of finished cells."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest

from mslg.sweeps.ledger import POINTS, Ledger, commit, finished
from tests.support.small_sweep import RECIPE, grid_of, made


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    cells, found = grid.cells(), made(grid, lambda *key: 0.5 + key[2] / 10)
    ledger = Ledger(tmp_path)
    assert ledger.tidy(cells) == {}
    for cell in reversed(cells):  # workers finish in any order
        ledger.add(found[cell.key])
    assert ledger.read() == found
    assert list(ledger.tidy(cells)) == [cell.key for cell in cells]
    text = ledger.path.read_text()
    assert [json.loads(line)["row"] for line in text.splitlines()[1:]] == [cell.row for cell in cells]
    before = ledger.path.stat()
    ledger.tidy(cells)
    assert ledger.path.stat() == before, "nothing to do, nothing written"


def test_a_line_cut_off_by_a_kill_is_run_again(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    cells, found = grid.cells(), made(grid, lambda *_: 0.5)
    ledger = Ledger(tmp_path)
    ledger.tidy(cells)
    for cell in cells[:3]:
        ledger.add(found[cell.key])
    ledger.path.write_text(ledger.path.read_text()[:-20])
    assert set(ledger.read()) == {cell.key for cell in cells[:2]}
    ledger.tidy(cells)
    ledger.add(found[cells[2].key])
    assert set(ledger.read()) == {cell.key for cell in cells[:3]}
    lines = ledger.path.read_text().splitlines()
    lines[1] = lines[1][:-20]
    ledger.path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"cells.jsonl, line 2 cannot be read"):
        ledger.read()


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl").write_text('{"format_version": 9}\n')
    with pytest.raises(ValueError, match="has format version 9; this mslg reads 1"):
        Ledger(tmp_path).read()


def test_cells_with_other_settings_are_put_aside_and_come_back(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    found = made(grid, lambda *_: 0.5)
    ledger = Ledger(tmp_path)
    ledger.tidy(grid.cells())
    for each in found.values():
        ledger.add(each)
    other = grid_of(tmp_path, RECIPE.replace("rate = 0.2", "rate = 0.3"))
    assert {key[1] for key in ledger.tidy(other.cells())} == {"uniform-40"}
    assert len(ledger.read()) == 4
    assert len(ledger.stale.read_text().splitlines()) == 5
    assert ledger.tidy(grid.cells()) == found
    assert not ledger.stale.exists()


def test_a_long_history_is_thinned_and_keeps_its_end(tmp_path: Path) -> None:
    cell = grid_of(tmp_path).cells()[0]
    history = [{"epoch": epoch, "test/accuracy": epoch / 200, "labels/accuracy": math.nan} for epoch in range(121)]
    kept = finished(cell, {"state": "done", "last": {"test/accuracy": 0.6, "report/accuracy": None}}, history, 1.0)
    assert len(kept.epochs) <= POINTS + 1
    assert kept.epochs[0] == 0
    assert kept.epochs[-1] == 120
    assert kept.curves == {"test/accuracy": [round(epoch / 200, 5) for epoch in kept.epochs]}
    assert kept.last == {"test/accuracy": 0.6}
    assert kept.settings == cell.digest


def test_the_commit_is_that_of_the_repository_the_file_belongs_to(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    for name in ("own.py", "installed.py"):
        (tmp_path / name).touch()
    git("init")
    git("add", "own.py")
    git("-c", "user.name=me", "-c", "user.email=me@here", "commit", "-m", "first")
    assert len(commit(tmp_path / "own.py")) == 10
    assert commit(tmp_path / "installed.py") == "", "inside of somebody else's repository"

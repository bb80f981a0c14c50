"""The published CIFAR-10 recipe on real images, with every setting as published but its length; and cells that several
people ran, in one table."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mslg.runs.recipes import recipe_text
from mslg.sweeps.grid import load_grid
from mslg.sweeps.ledger import Ledger, _line
from mslg.sweeps.run import run_sweep
from tests.support.small_sweep import grid_of, made

DATA = os.environ.get("MSLG_TEST_DATA")
RECIPE = "paper-table1-published"
# 60 steps instead of 46,920, a third of them warm-up as published: a step of the full network takes seconds.
CUT = {
    'source = "cifar10"': 'source = "cifar10"\nsubset = 2560',
    "epochs = 120": "epochs = 3",
    "warm_up = 44": "warm_up = 1",
}


def cut(folder: Path) -> Path:
    """The recipe with another length."""
    text = recipe_text(RECIPE)
    for published, short in CUT.items():
        assert published in text
        text = text.replace(published, short, 1)
    (folder / "short.toml").write_text(text)
    return folder / "short.toml"


def test_only_the_length_is_not_as_published(tmp_path: Path) -> None:
    cells = []
    for name in (RECIPE, str(cut(tmp_path))):
        grid = load_grid(name)
        cells += [cell.settings for cell in grid.cells() if cell.key == ("mslg", "uniform-40", 0)]
    published, short = cells
    assert short["data"].pop("subset") == 2560
    assert (short["train"].pop("epochs"), published["train"].pop("epochs")) == (3, 120)
    assert (short["method"].pop("warm_up"), published["method"].pop("warm_up")) == (1, 44)
    assert short == published


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(DATA is None, reason="MSLG_TEST_DATA is not set: no real CIFAR-10 to train on")
def test_the_published_recipe_runs_from_images_to_the_table(tmp_path: Path) -> None:
    assert DATA is not None
    root = Path(DATA)
    if not (root / "cifar-10-batches-py").exists():
        subprocess.run([sys.executable, str(root / "make_cifar10.py"), str(tmp_path)], check=True, capture_output=True)
        root = tmp_path
    folder = tmp_path / "sweep"
    place = ["--row", "mslg", "--column", "uniform-40", "--seed", "0"]
    run(["sweep", str(cut(tmp_path)), "-o", str(folder), "--root", str(root), "-j", "1", "--keep-runs", *place])
    (cell,) = Ledger(folder).read().values()
    assert cell.state == "done"
    assert cell.last["given/accuracy"] == pytest.approx(0.6, abs=0.03)
    # The published steps are long: a network that was warmed up for 20 steps, not 17,000, does not survive them.
    assert (cell.curves["test/accuracy"][0] or 0) > 0.15, "the warm-up is above chance"
    assert cell.last["labels/accuracy"] != cell.last["given/accuracy"], "labels are learned"
    (ran,) = (folder / "runs").iterdir()
    lines = [json.loads(line) for line in (ran / "metrics.jsonl").read_text().splitlines()]
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    assert len(losses) == 3
    assert all(map(math.isfinite, losses))
    assert "79.82" in run(["table", str(folder)]), "the paper's number stands beside"


def run(words: list[str]) -> str:
    done = subprocess.run([sys.executable, "-m", "mslg", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_cells_of_several_people_make_one_table(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    found = made(grid, lambda row, column, seed: 0.5 + 0.1 * seed)
    mine, yours = ({key: cell for key, cell in found.items() if key[2] == seed} for seed in grid.seeds[:2])
    folder, theirs = tmp_path / "mine", tmp_path / "yours"
    for place, cells in ((folder, mine), (theirs, yours)):
        place.mkdir()
        shutil.copy(tmp_path / "given.toml", place / "recipe.toml")
        header = '{"format_version": 1, "kind": "cells of a sweep"}\n'
        (place / "cells.jsonl").write_text(header + "".join(map(_line, cells.values())))
    added = (theirs / "cells.jsonl").read_text().splitlines(keepends=True)[1:]
    other = _line(made(grid, lambda *_: 0.9)[next(iter(mine))]).replace(next(iter(mine.values())).settings, "0" * 12)
    with (folder / "cells.jsonl").open("a") as file:
        file.writelines([*added, *added, other])  # doubles, and one with other settings
    assert run_sweep(grid, folder, processes=0, only=lambda cell: False) == {}
    assert Ledger(folder).read() == {key: cell for key, cell in found.items() if key[2] in grid.seeds[:2]}

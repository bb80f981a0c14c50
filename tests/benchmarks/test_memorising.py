"""The memorising benchmark: learning rates by trials, and a recipe from them. Cells that are run again are compared
digit by digit; statements on real noise are counted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mslg.sweeps.grid import load_grid
from mslg.sweeps.ledger import FORMAT, Finished, _line

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks_importable() -> Iterator[None]:
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


def test_the_better_of_two_trials_stands_in_the_recipe(tmp_path: Path) -> None:
    import memorising

    folder = tmp_path / "memorising-tuning"
    folder.mkdir()
    grid = load_grid(str(BENCHMARKS / "recipes" / "memorising-tuning.toml"))
    accuracy = {"elr: 0.05": 0.3, "elr: 0.01": 0.4, "pencil: 0.05": 0.5, "pencil: 0.01": 0.2, "mlnt: 0.05": 0.9}
    cells = [cell for cell in grid.cells() if cell.row in accuracy]
    lines = [
        _line(Finished(*cell.key, cell.digest, "done", {"test/accuracy": accuracy[cell.row]}, {})) for cell in cells
    ]
    (folder / "cells.jsonl").write_text(json.dumps({"format_version": FORMAT}) + "\n" + "".join(lines))
    chosen = memorising.choose(tmp_path)
    assert chosen == {"elr": 0.01, "pencil": 0.05}, "of mlnt a trial is missing"
    (tmp_path / "made.toml").write_text(memorising.recipe(chosen))
    made = load_grid(str(tmp_path / "made.toml"))
    rates = {cell.row: cell.settings["train"]["learning_rate"] for cell in made.cells()}
    assert (rates["elr"], rates["pencil"]) == (0.01, 0.05)
    assert "mlnt" not in rates
    schedule = {cell.row: cell.settings["train"]["schedule"] for cell in made.cells()}
    assert (schedule["elr"], schedule["mslg published"]) == ("cosine", "steps")


def test_every_phase_has_cells_of_the_recipe() -> None:
    import memorising

    rows = [row.name for row in memorising.ROWS]
    assert len(set(rows)) == len(rows)
    for phase in memorising.PHASES:
        assert {row.name for row in phase.rows} <= set(rows)
        assert set(phase.columns) <= set(memorising.COLUMNS)
    named = {(row.name, column) for phase in memorising.PHASES for row in phase.rows for column in phase.columns}
    tuned = {(name, column) for name, column in named if not name.startswith("released, ")}
    others = [name for name in rows if not name.startswith("released, ")]
    every = {(name, column) for name in others for column in memorising.EVERY}
    assert tuned == {*every, ("cross-entropy", "uniform-60")}
    assert set(memorising.COLUMNS) - set(memorising.EVERY) == {"uniform-60"}


def test_a_cell_run_again_is_compared_digit_by_digit() -> None:
    import rerun

    before: dict[str, Any] = {"row": "a", "seconds": 3.0, "last": {"test": 0.5, "given": 0.6}, "epochs": [0, 1]}
    assert rerun.differences(before, {**before, "seconds": 9.0, "new": 1}) == {}
    after = {**before, "last": {"test": 0.50001, "given": 0.6}, "epochs": [0]}
    assert rerun.differences(before, after) == {"last: test": [0.5, 0.50001], "epochs": [[0, 1], [0]]}


def test_outcomes_of_cells_run_again_are_kept_beside_the_others() -> None:
    import rerun

    known = [{"cell": name, "differences": {"test": [1, 2]}, "note": "older code"} for name in ("a", "b", "c")]
    new = [{"cell": "b", "differences": {}}, {"cell": "c", "differences": {"test": [1, 2]}}]
    found = rerun.together(known, [*new, {"cell": "d", "differences": {}}])
    assert found == [known[0], new[0], known[2], {"cell": "d", "differences": {}}]


def test_statements_on_real_noise_are_counted(tmp_path: Path) -> None:
    from pages import real_noise

    holds, misses = ({"estimate": 0.1, "low": 0.05, "high": 0.15, "truth": truth} for truth in (0.1, 0.2))
    lists = {"mslg": {"ap": 0.5, "f1": 0.4, "right": 0.9}, "self-confidence": {"ap": 0.3, "f1": 0.2, "right": 0.7}}
    cleanlab = {"ap": {"a": 0.4, "b": 0.45}, "filters": {"c": {"f1": 0.3, "right": 0.8}}}
    row = {"model": "all three", "verified": 300, **lists, "cleanlab": cleanlab}
    row["intervals"] = {"count": holds, "50": misses, "flagged": holds}
    sets = ("cifar human 9", "cifar uniform 40")
    cells = [{"set": name, "seed": seed, "rows": [row]} for name in sets for seed in (0, 1)]
    (tmp_path / "any_model.json").write_text(json.dumps({"cells": cells}))
    page = "\n".join(real_noise.section(tmp_path))
    assert "| CIFAR-10N, people | 300 | 50.0 | 45.0 | 40.0 | 30.0 | 90.0 | 80.0 |" in page
    assert "| CIFAR-10N, people | `find_label_issues`, 300 verified | 6 | 4 | 67 % |" in page
    assert "uniform" not in page, "made noise is not real"

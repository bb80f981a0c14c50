"""What is missing is run, and only that."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mslg.fitting.fit import fit_settings
from mslg.runtime import checksums
from mslg.runtime.machine import processors
from mslg.sweeps.grid import Grid
from mslg.sweeps.ledger import Finished
from mslg.sweeps.pool import Event, default_processes
from mslg.sweeps.run import _alone, places, results, run_folder, run_sweep
from tests.support.small_sweep import RECIPE, Inline, grid_of

Results = dict[tuple[str, str, int], Finished]


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Inline:
    made = Inline()
    monkeypatch.setattr("mslg.sweeps.run.run_all", made)
    return made


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    return grid_of(tmp_path)


def timeless(found: Results) -> Results:
    return {key: replace(each, seconds=0.0, commit="", versions={}) for key, each in found.items()}


def test_only_what_is_missing_is_run(tmp_path: Path, grid: Grid, inline: Inline) -> None:
    heard: list[Event] = []
    assert run_sweep(grid, tmp_path, only=lambda cell: cell.seed == 0, watch=heard.append) == {}
    assert inline.ran == [cell.key for cell in grid.cells() if cell.seed == 0]
    assert [event.finished is not None for event in heard] == 4 * [False, False, False, False, True]
    assert [(event.epoch, event.epochs) for event in heard[:4]] == [(0, 0), (0, 2), (1, 2), (2, 2)]
    assert run_sweep(grid, tmp_path) == {}
    assert len(inline.ran) == len(set(inline.ran)) == 8
    found = results(grid, tmp_path)
    assert len(found) == 8
    assert all(each.state == "done" and 0.1 < each.last["test/accuracy"] < 1 for each in found.values())
    assert "labels/accuracy" in found["mslg", "pair-20", 1].curves
    assert not (tmp_path / "runs").exists()

    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert run_sweep(grid, tmp_path, watch=heard.append) == {}
    assert len(inline.ran) == 8, "a finished sweep runs nothing"
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.name != ".lock"}
    assert after == {name: moment for name, moment in before.items() if name != ".lock"}

    changed = grid_of(tmp_path, RECIPE.replace("rate = 0.2", "rate = 0.3"))
    run_sweep(changed, tmp_path)
    assert {key[1] for key in inline.ran[8:]} == {"pair-20"}
    assert len(inline.ran) == 12
    assert results(changed, tmp_path)["mslg", "uniform-40", 0] == found["mslg", "uniform-40", 0]
    assert len(results(grid, tmp_path)) == 4, "results of other settings are not results"


def test_a_diverged_run_is_a_result_and_an_error_is_none(tmp_path: Path, inline: Inline) -> None:
    text = RECIPE + '[rows.mad]\nmethod = { name = "mslg" }\ntrain = { learning_rate = 1e30 }\n'
    text += "[rows.odd]\nmethod = { label_rat = 1.0 }\n"
    grid = grid_of(tmp_path, text)
    chosen = {("mad", "pair-20", 0), ("odd", "pair-20", 0)}
    errors = run_sweep(grid, tmp_path, only=lambda cell: cell.key in chosen)
    assert list(errors) == [("odd", "pair-20", 0)]
    assert "Did you mean 'label_rate'?" in errors["odd", "pair-20", 0]
    assert results(grid, tmp_path)["mad", "pair-20", 0].state == "failed"
    assert len(results(grid, tmp_path)) == 1


def test_runs_launched_elsewhere_are_collected(tmp_path: Path, grid: Grid, inline: Inline) -> None:
    cells = grid.cells()
    for cell in cells[:2]:
        settings = cell.placed(**places(tmp_path, None))
        fit_settings(settings, output=run_folder(tmp_path, cell), progress=False)
    # One that says it is this cell's and was run with something else.
    path = run_folder(tmp_path, cells[1]) / "config.toml"
    path.write_text(path.read_text().replace("batch_size = 128", "batch_size = 64", 1))
    checksums.record(path.parent, [path.name])
    begun = run_folder(tmp_path, cells[2])
    begun.mkdir(parents=True)
    (begun / ".config.toml.partial").write_text("killed before it began")
    errors = run_sweep(grid, tmp_path, keep_runs=True, only=lambda cell: cell in cells[:3])
    assert inline.ran == [cells[2].key]
    assert "was run with train.batch_size = 64, but the sweep has 128" in errors[cells[1].key]
    assert set(results(grid, tmp_path)) == {cells[0].key, cells[2].key}

    elsewhere = results(grid, tmp_path)[cells[0].key]
    other = tmp_path / "other"
    run_sweep(grid, other, only=lambda cell: cell == cells[0])
    assert timeless({cells[0].key: elsewhere}) == timeless(results(grid, other))


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path, grid: Grid, inline: Inline) -> None:
    with _alone(tmp_path), pytest.raises(BlockingIOError, match=r"another sweep is writing to .*; wait for it"):
        run_sweep(grid, tmp_path)


def test_a_worker_that_is_killed_is_replaced_and_the_result_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = grid_of(tmp_path, RECIPE.replace("epochs = 2", "epochs = 6"))
    killed: list[int | None] = []

    def watch(event: Event) -> None:
        if event.epoch == 2 and not killed:
            [worker] = multiprocessing.active_children()
            os.kill(worker.pid or 0, signal.SIGKILL)
            killed.append(worker.pid)

    only = lambda cell: cell.column == "pair-20" and cell.row == "mslg"  # noqa: E731
    assert run_sweep(grid, tmp_path / "killed", only=only, watch=watch) == {}
    assert killed
    assert not multiprocessing.active_children()
    monkeypatch.setattr("mslg.sweeps.run.run_all", Inline())
    run_sweep(grid, tmp_path / "whole", only=only)
    found = [timeless(results(grid, tmp_path / name)) for name in ("killed", "whole")]
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_on_a_gpu_one_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslg.sweeps.pool.processors", lambda: 5)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert [default_processes(name) for name in ("auto", "cuda:1", "cpu")] == [1, 1, 5]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert default_processes("auto") == 5
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    assert processors() == 3


def test_a_worker_may_have_workers_that_decode_images(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(8):
            pixels = noise.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    text = (
        "[sweep]\n[data]\nsource = '{root}/images'\nsize = 8\n[network]\nname = 'mlp'\nhidden = [4]\n"
        "[train]\nepochs = 1\nbatch_size = 8\n[columns.as-given]\n[rows.plain.method]\nname = 'cross-entropy'\n"
    )
    grid = grid_of(tmp_path, text)
    assert run_sweep(grid, tmp_path / "out", root=str(tmp_path), workers=1, device="cpu") == {}
    assert not multiprocessing.active_children()


def test_places_are_the_same_from_every_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert places(Path("out"), "data") == {"root": str(tmp_path / "data"), "output": str(tmp_path / "out")}
    assert places(Path("out"), None)["root"] is None


def test_a_run_begun_with_other_settings_is_started_over(tmp_path: Path, grid: Grid, inline: Inline) -> None:
    cell = grid.cells()[0]
    folder = run_folder(tmp_path, cell)
    fit_settings(cell.placed(), output=folder, progress=False)
    for name in ("done", "summary.json"):
        (folder / name).unlink()
    config = folder / "config.toml"
    config.write_text(config.read_text().replace('source = "digits"', 'source = "digits"\nroot = "elsewhere"'))
    checksums.record(folder, ["config.toml"])
    assert run_sweep(grid, tmp_path, only=lambda each: each == cell, keep_runs=True) == {}
    assert "elsewhere" not in config.read_text()
    assert set(results(grid, tmp_path)) == {cell.key}

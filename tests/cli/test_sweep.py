"""The verbs sweep, table and plot."""

from __future__ import annotations

import inspect
import json
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mslg.cli.app import app
from mslg.data.readers import CLASSES, DATASETS, number_of_classes
from mslg.methods.mslg.method import MSLG
from tests.support.small_sweep import RECIPE, Inline


def mslg(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Inline:
    made = Inline()
    monkeypatch.setattr("mslg.sweeps.run.run_all", made)
    return made


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swept")
    (folder / "mine.toml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mslg.sweeps.run.run_all", Inline())
        done = mslg("sweep", str(folder / "mine.toml"), "-o", str(folder / "out"))
    assert done.exit_code == 0, done.output
    assert "8 of 8 cells done; see: mslg table" in done.stderr
    assert done.stdout == ""
    return folder / "out"


def test_a_finished_sweep_is_left_alone(swept: Path, inline: Inline) -> None:
    done = mslg("sweep", str(swept.parent / "mine.toml"), "-o", str(swept), "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"cells": 8, "finished": 8, "ran": 0, "failed": 0, "errors": []}
    assert not inline.ran


def test_part_of_a_sweep(recipe: Path, inline: Inline) -> None:
    done = mslg("sweep", "mine.toml", "-o", "out", "--row", "mslg", "--column", "pair-20", "--seed", "1")
    assert done.exit_code == 0, done.output
    assert inline.ran == [("mslg", "pair-20", 1)]
    assert "1 of 1 cells done" in done.stderr
    for words, message in {
        ("--row", "mlsg"): "unknown row 'mlsg'. Did you mean 'mslg'?",
        ("--seed", "7"): "unknown seed '7'. Allowed: 0, 1",
    }.items():
        assert message in str(mslg("sweep", "mine.toml", "-o", "out", *words).exception)
    shown = mslg("table", "out").stdout
    assert "(1/2)" in shown
    assert "–" in shown


def test_errors_are_listed_at_the_end(recipe: Path, inline: Inline) -> None:
    recipe.write_text(RECIPE + '[rows.odd]\nmethod = { name = "cross-entropy", temperature = 2 }\n')
    words = ("sweep", "mine.toml", "-o", "out", "--row", "odd", "--row", "mslg", "--seed", "0", "--json")
    done = mslg(*words)
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["finished"], told["ran"], len(told["errors"])) == (2, 2, 2)
    assert "could not run odd, uniform-40, seed 0: unknown setting of cross-entropy" in done.stderr
    assert done.stderr.rstrip().endswith("2 of 4 cells could not be run; run the same command to retry")


def test_an_interrupt_says_how_to_go_on(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mslg.sweeps.run.run_all", interrupted)
    done = mslg("sweep", "mine.toml", "-o", "out")
    assert done.exit_code == 130
    assert done.stderr == "interrupted, 0 of 8 cells done; run the same command to continue\n"


def test_a_dry_run_shows_every_setting(recipe: Path, inline: Inline) -> None:
    recipe.write_text(RECIPE + '[rows.released]\nmethod = { name = "mslg", preset = "released", start = 4.0 }\n')
    done = mslg("sweep", "mine.toml", "-o", "out", "--dry-run", "--json", "--seed", "1", "--column", "pair-20")
    assert done.exit_code == 0, done.output
    lines = {line["row"]: line["settings"] for line in map(json.loads, done.stdout.splitlines())}
    assert list(lines) == ["cross entropy", "mslg", "released"]
    default = inspect.signature(MSLG).parameters["label_rate"].default
    assert lines["mslg"]["method"]["label_rate"] == default, "the constructor's default"
    assert (lines["mslg"]["method"]["prior"], lines["released"]["method"]["prior"]) == ("choose", "given")
    released = lines["released"]["method"]
    assert released["label_rate"] == pytest.approx(0.5 * 4000 / (128 * 10)), "αβ/(NC) by the preset"
    assert released["start"] == 4.0, "what the recipe says wins over the preset"
    assert lines["released"]["train"]["learning_rate"] == 0.05, "fit's default"
    text = mslg("sweep", "mine.toml", "-o", "out", "--dry-run", "--row", "mslg", "--seed", "1", "--column", "pair-20")
    heading, _, rest = text.stdout.partition("\n")
    assert heading == "# mslg, pair-20, seed 1"
    assert tomllib.loads(rest)["method"] == {k: v for k, v in lines["mslg"]["method"].items() if v is not None}
    assert not inline.ran
    assert not Path("out").exists()


def test_a_dry_run_fills_in_the_folders(recipe: Path) -> None:
    recipe.write_text(RECIPE.replace("clean = 100", 'clean = 100\nroot = "{root}"'))
    one = ("sweep", "mine.toml", "-o", "out", "--dry-run", "--row", "mslg", "--seed", "1", "--column", "pair-20")
    done = mslg(*one, "--root", "/data")
    assert tomllib.loads(done.stdout.partition("\n")[2])["data"]["root"] == "/data"
    assert "{root}" not in done.stdout
    assert 'root = "{root}"' in mslg(*one).stdout, "nobody has said where it is"


def test_every_named_data_set_says_how_many_classes_it_has() -> None:
    assert set(CLASSES) == set(DATASETS)
    assert number_of_classes({"source": "digits"}) == 10
    assert number_of_classes({"source": "webvision", "mini": False}) == 1000
    assert number_of_classes({"source": "mine.npz"}) is None


def test_commands_for_a_scheduler(recipe: Path, inline: Inline, swept: Path) -> None:
    done = mslg("sweep", "mine.toml", "-o", "my out", "--commands")
    assert done.exit_code == 0, done.output
    commands = [shlex.split(line) for line in done.stdout.splitlines()]
    assert len(commands) == 8
    chosen = commands[3]
    assert chosen[:2] == ["mslg", "fit"]
    assert chosen[-1] == "--resume"
    assert chosen[-6:-1] == ["--no-compare", "--device", "auto", "--workers", "0"]
    fitted = mslg(*chosen[1:], "--quiet")
    assert fitted.exit_code == 0, fitted.output
    assert len(mslg("sweep", "mine.toml", "-o", "my out", "--commands").stdout.splitlines()) == 7
    collected = mslg("sweep", "mine.toml", "-o", "my out", "-j", "0")
    assert collected.exit_code == 0, collected.output
    assert "1 of 8 cells done" in collected.stderr
    assert not inline.ran
    [ours] = [cell for cell in _cells(Path("my out")) if cell["mean"] is not None]
    [theirs] = [cell for cell in _cells(swept) if (cell["row"], cell["column"]) == (ours["row"], ours["column"])]
    assert ours["values"]["0"] == theirs["values"]["0"]


def _cells(folder: Path) -> list[dict[str, dict[str, float]]]:
    found: list[dict[str, dict[str, float]]] = json.loads(mslg("table", str(folder), "--format", "json").stdout)[
        "cells"
    ]
    return found


def test_tables(swept: Path, tmp_path: Path) -> None:
    shown = mslg("table", str(swept)).stdout
    assert shown.startswith("Two methods on two noises.\nprotocol clean: 100 samples\n")
    assert "difference to cross entropy, paired by seed" in shown
    other = mslg("table", str(swept), "--against", "mslg", "--format", "markdown", "--measure", "predictions/accuracy")
    assert "difference to mslg" in other.stdout
    assert "predicted labels of the training set that are correct" in other.stdout
    assert "Did you mean 'latex'" in str(mslg("table", str(swept), "--format", "latec").exception)
    assert "there is no sweep in" in str(mslg("table", str(tmp_path)).exception)
    copy = tmp_path / "fresh clone"
    copy.mkdir()
    shutil.copy(swept / "cells.jsonl", copy)
    recipe = str(swept.parent / "mine.toml")
    assert mslg("table", str(copy), "--recipe", recipe).stdout == shown, "the one small file is all of it"


def test_plots(swept: Path, tmp_path: Path) -> None:
    done = mslg("plot", str(swept), "-o", str(tmp_path / "labels.svg"), "--kind", "labels", "--column", "pair-20")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{tmp_path / 'labels.svg'}\n"
    assert (tmp_path / "labels.svg").read_text().startswith("<?xml")
    assert "unknown row 'x'" in str(mslg("plot", str(swept), "--row", "x").exception)


@pytest.mark.parametrize("verb", ["sweep", "table", "plot"])
def test_help_ends_with_an_example(verb: str) -> None:
    shown = mslg(verb, "--help").stdout
    assert f"mslg {verb}" in shown.split("Options")[0].partition("Example")[2]


def test_cells_that_come_back_are_counted(swept: Path, tmp_path: Path, inline: Inline) -> None:
    shutil.copytree(swept, tmp_path / "out")
    other = tmp_path / "other.toml"
    other.write_text(RECIPE.replace("rate = 0.2", "rate = 0.3"))
    assert mslg("sweep", str(other), "-o", str(tmp_path / "out"), "-j", "0").exit_code == 0
    again = ("sweep", str(swept.parent / "mine.toml"), "-o", str(tmp_path / "out"))
    assert mslg(*again, "--commands").stdout == ""
    told = json.loads(mslg(*again, "--json").stdout)
    assert (told["finished"], told["ran"]) == (8, 0)
    assert not inline.ran

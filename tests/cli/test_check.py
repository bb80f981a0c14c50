"""`mslg check`: counts, corrupt images, duplicates, overlaps, and an exit code that a script can use."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

from mslg.cli.app import app
from mslg.data.check import inspect
from mslg.data.open import open_named
from mslg.data.open_clean import open_clean
from mslg.data.readers.options import Reading
from mslg.data.source import Source
from tests.support import trees
from tests.support.blobs import blobs
from tests.support.command import mslg

KEEP = Reading(corrupt="keep")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    """The command in this process, which saves importing torch again."""
    return CliRunner().invoke(app, list(words), env={"NO_COLOR": "1"})


def looked_at(data: Path, clean: Path | None = None, **options: Any) -> Any:
    bundle = open_named(str(data), reading=KEEP)
    opened = open_clean(None if clean is None else str(clean), bundle, reading=KEEP)
    return inspect(bundle, opened if isinstance(opened, Source) else None, **{"workers": 0, **options})


def test_a_sound_folder_is_told_in_a_few_lines(here: Path) -> None:
    trees.image_folder(here / "photos")
    done = run("check", "photos")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "samples   24 train",
        "classes   3: ant (8), bee (8), cat (8)",
        "sizes     20×20 (24)",
        "ok        nothing here would stop a run",
    ]
    assert done.stderr == "", "no bar where there is no terminal"


def test_everything_wrong_is_listed_and_the_exit_code_is_1(here: Path) -> None:
    noisy = trees.image_folder(here / "noisy")
    for number in range(12):
        trees.picture(noisy / "ant" / f"bad{number:02d}.png", 0, 100 + number)
        trees.truncate(noisy / "ant" / f"bad{number:02d}.png")
    (noisy / "bee" / "copy.png").write_bytes((noisy / "ant" / "1.png").read_bytes())
    clean = here / "clean"
    trees.picture(clean / "bee" / "fresh.png", 1, 200)
    (clean / "ant").mkdir()
    (clean / "ant" / "3.png").write_bytes((noisy / "ant" / "3.png").read_bytes())
    (clean / "ant" / "renamed.png").write_bytes((noisy / "ant" / "5.png").read_bytes())
    done = run("check", "noisy", "--clean", "clean", "--json")
    assert done.exit_code == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["samples"] == {"train": 37, "clean": 3}
    assert [entry["id"] for entry in found["corrupt"]] == [f"ant/bad{number:02d}.png" for number in range(12)]
    assert found["duplicates"] == [["ant/1.png", "bee/copy.png"]]
    assert found["conflicts"] == 1
    assert found["same_ids"] == ["ant/3.png", "ant/5.png"], "the second under another name"
    assert found["same_content"] == []
    assert found["missing_in_clean"] == ["cat"]
    assert len(found["fatal"]) == 1
    words = run("check", "noisy", "--clean", "clean")
    assert words.exit_code == 1
    assert "corrupt: 12" in words.stdout
    assert "and 2 more (--json lists them all)" in words.stdout
    assert "FATAL     12 images cannot be read: fix them, or skip them: mslg fit --corrupt skip" in words.stdout
    assert "note      the clean set has no sample of: cat" in words.stdout


def test_damage_that_a_quick_look_misses_is_found(tmp_path: Path) -> None:
    root = trees.image_folder(tmp_path)
    content = bytearray((root / "ant" / "1.png").read_bytes())
    content[60:200] = bytes(140)
    (root / "ant" / "1.png").write_bytes(content)
    assert [entry["id"] for entry in looked_at(root).corrupt] == ["ant/1.png"]


def test_workers_find_the_same(tmp_path: Path) -> None:
    root = trees.image_folder(tmp_path, each=50)
    trees.truncate(root / "bee" / "7.png")
    told: list[int] = []
    assert looked_at(root, workers=2, advance=told.append) == looked_at(root, workers=0)
    assert told == [64, 64, 22]


def test_a_manifest_with_a_test_image_in_training_is_a_leak(tmp_path: Path) -> None:
    path = trees.manifest(tmp_path)
    (tmp_path / "images" / "ant,9.png").write_bytes((tmp_path / "images" / "ant,0.png").read_bytes())
    findings = looked_at(path)
    assert findings.leaks == [["images/ant,0.png", "images/ant,9.png"]]
    assert findings.fatal == ["1 test samples have the same content as training samples"]


def test_arrays_are_compared_row_by_row(tmp_path: Path) -> None:
    data = blobs()
    np.savez(
        tmp_path / "noisy.npz", X=np.concatenate([data.x, data.x[:2]]), y=np.concatenate([data.given, data.given[:2]])
    )
    np.savez(tmp_path / "clean.npz", X=np.concatenate([data.clean_x, data.x[5:6]]), y=np.append(data.clean_y, 0))
    findings = looked_at(tmp_path / "noisy.npz", tmp_path / "clean.npz")
    assert findings.duplicates == [["0", "240"], ["1", "241"]]
    assert findings.same_ids == [], "positions are no ids"
    assert findings.same_content == [["5", "24"]]


def test_a_link_out_of_the_folder_is_reported_not_followed(tmp_path: Path) -> None:
    trees.picture(tmp_path / "secret.png", 0)
    path = trees.manifest(tmp_path / "in")
    (tmp_path / "in" / "images" / "ant,0.png").unlink()
    (tmp_path / "in" / "images" / "ant,0.png").symlink_to(tmp_path / "secret.png")
    (entry,) = looked_at(path).corrupt
    assert "leads out of the folder" in entry["problem"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"label": [0, -3]}, "has the label -3"),
        ({"labels": [0, 1]}, "unknown column in data.csv 'labels'. Did you mean 'label'?"),
    ],
)
def test_data_that_cannot_be_opened_is_one_message(rows: dict[str, list[int]], message: str, tmp_path: Path) -> None:
    pd.DataFrame({"x": [1.0, 2.0], **rows}).to_csv(tmp_path / "data.csv", index=False)
    done = mslg("check", "data.csv", cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_named_data_is_looked_at_where_it_is(here: Path) -> None:
    trees.clothing1m(here / "c")
    done = run("check", "clothing1m", "--root", "c", "--clean", "clean-val", "--json")
    assert done.exit_code == 0, done.stdout
    found = json.loads(done.stdout)
    assert found["samples"] == {"train": 28, "test": 14, "clean": 15}
    assert len(found["same_ids"]) == 1


def test_fit_reads_images_from_the_command_line(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    trees.image_folder(here / "noisy")
    trees.image_folder(here / "clean", start=100, each=4)
    trees.truncate(here / "noisy" / "cat" / "5.png")
    words = ["fit", "noisy", "--clean", "clean", "-o", "run", "--epochs", "3", "--batch-size", "8"]
    words += ["--set", "network.width=4", "--workers", "0"]
    refused = run(*words)
    assert refused.exit_code == 1
    assert "1 of 24 image files of noisy cannot be read" in str(refused.exception)
    with caplog.at_level(logging.WARNING, logger="mslg"):
        done = run(*words, "--corrupt", "skip")
    assert done.exit_code == 0, done.output
    assert "noisy: skipping 1 of 24 image files that cannot be read" in caplog.text
    labels = pd.read_parquet(here / "run" / "labels.parquet")
    assert len(labels) == 23
    resumed = run("fit", "-o", "run", "--resume", "--workers", "2")
    assert resumed.exit_code == 0, resumed.output


def test_a_number_of_clean_samples_is_judged_as_fit_would(here: Path) -> None:
    data = blobs()
    np.savez(here / "data.npz", X=data.x, y=data.given)
    done = run("check", "data.npz", "--clean", "50")
    assert done.exit_code == 1
    assert "the data has no verified labels" in done.stdout

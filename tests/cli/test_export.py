"""`mslg export` on an image folder as a newcomer has it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.support import trees
from tests.support.command import mslg


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export")
    trees.image_folder(path / "photos", each=8)
    trees.image_folder(path / "verified", each=2, start=100)
    words = ("--clean", "verified", "-o", "run", "--epochs", "2", "--batch-size", "8", "--set", "network.width=4")
    words += ("--method", "cross-entropy")
    done = mslg("fit", "photos", *words, "--workers", "0", "--no-compare", "--no-report", cwd=path)
    assert done.returncode == 0, done.stderr
    return path


def test_files_go_where_they_are_told(place: Path) -> None:
    done = mslg("export", "run", "--to", "csv", "-o", "labels.csv", "--soft", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"output": "labels.csv", "format": "csv"}
    assert {"p_ant", "p_bee", "p_cat"} < set(pd.read_csv(place / "labels.csv"))
    done = mslg("export", "run", "--to", "imagefolder", "-o", "relabelled", "--link", cwd=place)
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr.splitlines()[-1]) == ("", "written: relabelled")
    assert len([path for path in (place / "relabelled").rglob("*") if path.suffix in (".png", ".jpg")]) == 24


def test_a_mistake_is_one_line(place: Path) -> None:
    done = mslg("export", "run", "--to", "label-studo", cwd=place)
    assert done.returncode == 1
    assert done.stderr.startswith("error: unknown format 'label-studo'. Did you mean 'label-studio'?")
    assert len(done.stderr.splitlines()) == 1

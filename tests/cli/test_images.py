"""A newcomer's own image folder: check, fit, labels with the paths of the files."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from mslg.data.open import open_named
from mslg.data.stores import Located
from mslg.networks.cnn import CNN8
from mslg.networks.features import extract
from tests.support import trees
from tests.support.command import mslg


def test_features_of_files_still_know_the_files(tmp_path: Path) -> None:
    photos = trees.image_folder(tmp_path / "photos", each=8)
    source = open_named(str(photos)).train
    found = extract(source, CNN8(3, width=4), name="cnn8", cache=tmp_path / "cache", progress=False)
    assert isinstance(found.store, Located)
    assert found.store.path(5) == source.store.path(5)  # type: ignore[attr-defined]


def test_an_image_folder_from_check_to_labels(tmp_path: Path) -> None:
    trees.image_folder(tmp_path / "photos", each=8)
    trees.image_folder(tmp_path / "verified", each=2, start=100)
    checked = mslg("check", "photos", "--clean", "verified", "--json", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["samples"] == {"train": 24, "clean": 6}
    words = ("fit", "photos", "--clean", "verified", "-o", "run", "--epochs", "3", "--batch-size", "8")
    done = mslg(*words, "--set", "network.width=4", "--workers", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    frame = pd.read_parquet(tmp_path / "run" / "labels.parquet")
    assert len(frame) == 24
    assert all((tmp_path / path).exists() for path in frame["path"])
    assert set(frame["given_label"]) == {"ant", "bee", "cat"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--clean", "verified", "--flag", "lots"), "flag is 'lots'; allowed are likelier, balanced, expected"),
        (("--clean", "verified", "--flag", "fdr=2"), "fdr is 2.0; it must be between 0 and 1"),
        (("--clean", "5"), "check 100 random samples first (mslg start DATA), or pass --clean auto"),
        (("--clean", "verified", "-o", "old"), "resume it with --resume, replace it with --force, or name another"),
    ],
)
def test_mistakes_are_told_before_photos_are_encoded(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    trees.image_folder(tmp_path / "photos", each=8)
    trees.image_folder(tmp_path / "verified", each=2, start=100)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "something").touch()
    done = mslg("fit", "photos", "-o", "run", *words, "--features", "cnn8", cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert "encode" not in done.stderr, "which takes minutes"
    assert "=True" not in done.stderr, "Python's words"

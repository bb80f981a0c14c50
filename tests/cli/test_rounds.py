"""Review, apply, go on: the round on the command line, on files as a user has them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.blobs import blobs
from tests.support.command import mslg

DATA = blobs(clean=200)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a finished run."""
    path = tmp_path_factory.mktemp("round")
    ids = np.array([f"n{number}" for number in range(240)])
    np.savez(path / "noisy.npz", X=DATA.x, y=DATA.given, id=ids, X_test=DATA.test_x, y_test=DATA.test_y)
    np.savez(path / "clean.npz", X=DATA.clean_x, y=DATA.clean_y, id=np.array([f"c{n}" for n in range(200)]))
    words = ("--clean", "clean.npz", "-o", "first", "--epochs", "6", "--batch-size", "32", "--no-compare")
    done = mslg("fit", "noisy.npz", *words, cwd=path)
    assert done.returncode == 0, done.stderr
    return path


def decide(place: Path, names: list[str], file: str) -> None:
    table = pd.read_parquet(place / "first" / "labels.parquet").set_index("id")
    with (place / file).open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["id", "decision", "label", "given_label", "suggested_label"])
        for name in names:
            row, true = table.loc[name], str(DATA.true[int(name[1:])])
            kind = "keep" if true == row.given_label else "accept" if true == row.suggested_label else "relabel"
            writer.writerow([name, kind, true, row.given_label, row.suggested_label])


def test_a_whole_round(place: Path) -> None:
    done = mslg("review-next", "first", "-n", "12", "-o", "next.csv", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    chosen = pd.read_csv(place / "next.csv")
    assert list(chosen.columns) == ["id", "rank", "given_label", "suggested_label", "gain"]
    decide(place, chosen["id"].tolist(), "decisions.csv")
    done = mslg("fit", "--from", "first", "--decisions", "decisions.csv", "-o", "second", "--no-compare", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "2 epochs, a third of those of first" in done.stderr
    assert "12 reviewed samples join the clean set" in done.stderr
    assert len(pd.read_parquet(place / "second" / "labels.parquet")) == 228
    done = mslg("fit", "-o", "second", "--resume", "--no-compare", cwd=place)
    assert done.returncode == 0, done.stderr
    done = mslg("review-next", "second", "-n", "3", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["format_version"] == 1
    assert len(found["samples"]) == 3
    assert not {row["id"] for row in found["samples"]} & set(chosen["id"])
    done = mslg("apply", "second", "-o", "cleaned.parquet", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["samples"] == 240
    assert told["labels"] == {"given": 228, "reviewed": 12}
    done = mslg("fit", "noisy.npz", "--labels", "cleaned.parquet", "--clean", "clean.npz", "-o", "third", cwd=place)
    assert done.returncode == 0, done.stderr


def test_apply_tells_what_became_of_the_samples(place: Path) -> None:
    decide(place, ["n1", "n2", "n3"], "d.csv")
    with (place / "d.csv").open("a") as file:
        file.write("n4,remove,,,\r\n")
    done = mslg("apply", "first", "d.csv", "-o", "some.csv", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "239 samples with labels: 236 given, 3 reviewed;" in done.stderr
    assert "1 removed; written to some.csv" in done.stderr
    done = mslg("apply", "first", "d.csv", "-o", "some.csv", cwd=place)
    assert done.returncode == 1
    assert "some.csv already exists" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("apply", "first"), "name a file or a folder for the cleaned data with -o"),
        (("apply", "first", "-o", "x.json"), "the format of x.json is not clear"),
        (
            ("apply", "first", "-o", "x", "--to", "imagefolder"),
            "are not files, so they cannot be written as imagefolder",
        ),
        (("apply", "nowhere", "-o", "x.csv"), "nowhere is not a run's folder"),
        (("review-next", "nowhere"), "nowhere is not a run's folder"),
        (("fit", "--from", "nowhere", "-o", "x"), "nowhere is not a run's folder: it has no config.toml"),
        (("fit", "--from", "first", "--decisions", "none.csv", "-o", "x"), "there is no file none.csv"),
    ],
)
def test_mistakes_are_one_clear_message(place: Path, words: tuple[str, ...], told: str) -> None:
    done = mslg(*words, cwd=place)
    assert done.returncode in (1, 2)
    assert told in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_help_ends_with_examples() -> None:
    for verb in ("apply", "review-next"):
        assert f"mslg {verb}" in mslg(verb, "--help").stdout.partition("Example")[2]

"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.blobs import blobs
from tests.support.command import mslg


@pytest.fixture
def files(tmp_path: Path) -> Path:
    data = blobs()
    np.savez(tmp_path / "noisy.npz", X=data.x, y=data.given, y_true=data.true, X_test=data.test_x, y_test=data.test_y)
    np.savez(tmp_path / "clean.npz", X=data.clean_x, y=data.clean_y)
    return tmp_path


@pytest.mark.parametrize("words", [("--help",), ("list",), ("list", "methods"), ("fit", "--help")])
def test_help_and_list_answer_at_once(words: tuple[str, ...]) -> None:
    times = []
    for _ in range(3):
        # Processor time: the clock on the wall also shows what else the machine is doing.
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = mslg(*words)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime)
        assert done.returncode == 0
        assert done.stdout
    # The help of fit draws forty options; on a busy machine that alone takes some tenths of a second.
    assert min(times) < (1.0 if words[0] == "fit" else 0.6)


def test_every_verb_ends_its_help_with_an_example() -> None:
    for verb in ("demo", "fit", "list", "doctor"):
        assert f"mslg {verb}" in mslg(verb, "--help").stdout.split("Options")[0].partition("Example")[2]


def test_fit_on_arrays_from_start_to_end(files: Path) -> None:
    done = mslg(
        "fit", "noisy.npz", "--clean", "clean.npz", "-o", "run", "--epochs", "6", "--batch-size", "32", cwd=files
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "results go to files, talk to stderr"
    assert "test accuracy" in done.stderr
    assert "ranked from the worst: run/labels.parquet" in done.stderr
    assert len(pd.read_parquet(files / "run" / "labels.parquet")) == 240
    again = mslg("fit", "noisy.npz", "--clean", "clean.npz", "-o", "run", cwd=files)
    assert again.returncode == 1
    assert "run is a finished run; resume it" in again.stderr
    resumed = mslg("fit", "-o", "run", "--resume", "--json", cwd=files)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["epochs"] == 6


def test_settings_from_recipe_flags_and_assignments(files: Path) -> None:
    (files / "mine.toml").write_text(
        '[method]\nname = "mslg"\nlabel_rate = 7.0\nstart = 5.0\n[train]\nepochs = 9\nseed = 4\n'
    )
    done = mslg(
        *("fit", "noisy.npz", "--clean", "clean.npz", "-o", "run", "--recipe", "mine.toml", "--epochs", "3"),
        *("--set", "start=4.0", "--set", "network.hidden=[8]", "--json"),
        cwd=files,
    )
    assert done.returncode == 0, done.stderr
    import tomllib

    config = tomllib.loads((files / "run" / "config.toml").read_text())
    assert config["method"]["label_rate"] == 7.0
    assert config["method"]["start"] == 4.0
    assert config["train"]["epochs"] == 3
    assert config["train"]["seed"] == 4
    assert config["network"] == {"class": "MLP", "hidden": [8], "name": "mlp"}


WRONG = {
    "missing file": (("fit", "nothing.npz", "-o", "r"), 1, "there is no file nothing.npz"),
    "unknown data": (("fit", "digit", "-o", "r"), 1, "unknown data set 'digit'. Did you mean 'digits'?"),
    "unknown method": (("fit", "digits", "--clean", "50", "--method", "mlsg", "-o", "r"), 1, "Did you mean 'mslg'?"),
    "unknown setting": (
        ("fit", "digits", "--clean", "50", "--set", "label_rat=1", "-o", "r"),
        1,
        "Did you mean 'label_rate'?",
    ),
    "no setting": (("fit", "digits", "--clean", "50", "--set", "label_rate", "-o", "r"), 1, "write --set key=value"),
    "unknown noise": (("fit", "digits", "--noise", "unifrom", "-o", "r"), 1, "Did you mean 'uniform'?"),
    "unknown network": (("fit", "digits", "--clean", "50", "--network", "mpl", "-o", "r"), 1, "Did you mean 'mlp'?"),
    "half precision": (
        ("fit", "digits", "--clean", "50", "--precision", "fp16", "--device", "cpu", "-o", "r"),
        1,
        "which only GPUs support",
    ),
    "unknown recipe": (("fit", "--recipe", "digit", "-o", "r"), 1, "Did you mean 'digits'?"),
    "no run": (("fit", "-o", "r", "--resume"), 1, "there is no run in r to resume"),
    "unknown table": (("fit", "digits", "--set", "foo.bar=1", "-o", "r"), 1, "unknown table 'foo'"),
    "no output": (("fit", "digits", "--clean", "50"), 2, "name a folder for the run with -o"),
    "no data": (("fit", "-o", "r"), 2, "name the data"),
    "no clean": (
        ("fit", "digits", "--noise", "uniform", "--rate", "0.4", "-o", "r"),
        1,
        "cross-fitted needs clean samples",
    ),
    "no rate": (("fit", "digits", "--noise", "uniform", "--clean", "50", "-o", "r"), 1, "needs a rate"),
    "too many clean": (
        ("fit", "digits", "--clean", "9999", "-o", "r"),
        1,
        "9999 clean samples were requested; from 1 to 1300",
    ),
    "budget": (("fit", "digits", "--clean", "50", "--time-budget", "soon", "-o", "r"), 2, "write 45s, 30m or 2h"),
    "unknown list": (("list", "method"), 1, "Did you mean 'methods'?"),
    "unknown verb": (("fitt",), 2, "fitt"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_clear_message(name: str, tmp_path: Path) -> None:
    words, code, message = WRONG[name]
    done = mslg(*words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "r").exists()


def test_archives_with_objects_in_them_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", X=np.array([{"a": 1}, None], dtype=object), y=np.array([0, 1]))
    done = mslg("fit", "bad.npz", "-o", "r", cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot be read as an .npz of plain arrays" in done.stderr


def test_an_archive_without_labels_says_what_it_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", X=np.zeros((4, 2)), labels=np.array([0, 1, 0, 1]))
    done = mslg("fit", "bad.npz", "-o", "r", cwd=tmp_path)
    assert done.returncode == 1
    assert "has no array y; it has X, labels" in done.stderr


def test_labels_that_noise_wrote_are_joined_to_their_data(files: Path) -> None:
    made = mslg("noise", "digits", "--kind", "pair", "--rate", "0.3", "-o", "noisy.parquet", cwd=files)
    assert made.returncode == 0, made.stderr
    refused = mslg("fit", "noisy.parquet", "--clean", "auto", "-o", "run", cwd=files)
    assert refused.returncode == 1
    assert "contains only labels, as written by mslg noise and mslg apply" in refused.stderr
    words = ("fit", "digits", "--labels", "noisy.parquet", "--clean", "100", "-o", "run", "--epochs", "2", "--json")
    words += ("--method", "mslg")
    done = mslg(*words, cwd=files)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["last"]["given/accuracy"] == pytest.approx(0.7, abs=0.02)


def test_doctor_measures_every_mode() -> None:
    done = mslg("doctor", "digits", "--rounds", "2", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["mode"]: row for row in json.loads(done.stdout)}
    assert set(rows) == {"exact", "difference", "double-backward", "head", "no look-ahead"}
    assert rows["exact"]["cosine"] == pytest.approx(1)
    assert rows["double-backward"]["cosine"] == pytest.approx(1, abs=1e-4)
    assert rows["difference"]["cosine"] > 0.99
    assert all(row["cost"] > 0 for row in rows.values())


def test_list_is_readable_by_machines() -> None:
    found = json.loads(mslg("list", "--json").stdout)
    assert "mslg" in {row["name"] for row in found["methods"]}
    assert set(found) == {"methods", "noises", "datasets", "networks", "recipes"}


def test_version() -> None:
    assert mslg("--version").stdout.startswith("mslg 0.")


def test_a_list_with_a_stated_error_rate(tmp_path: Path) -> None:
    data = blobs(samples=600, clean=240)
    np.savez(tmp_path / "noisy.npz", X=data.x, y=data.given)
    np.savez(tmp_path / "clean.npz", X=data.clean_x, y=data.clean_y)
    words = (
        "fit",
        "noisy.npz",
        "-o",
        "run",
        "--epochs",
        "4",
        "--method",
        "cross-entropy",
        "--no-compare",
        "--no-report",
    )
    done = mslg(*words, "--clean", "clean.npz", "--fdr", "0.1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["label_errors"]
    assert told["fdr"] == 0.1
    assert told["flagged"]["depth"] == pd.read_parquet(tmp_path / "run" / "labels.parquet")["is_label_issue"].sum()
    again = mslg("fit", "-o", "run", "--resume", "--no-compare", "--no-report", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["label_errors"] == told, "a resumed run remembers it"
    refused = mslg(*words, "--force", "--clean", "auto", "--fdr", "0.1", cwd=tmp_path)
    assert refused.returncode != 0
    assert "fdr = 0.1 cannot be kept" in refused.stderr
    assert (tmp_path / "run" / "done").exists(), "refused before anything is replaced"

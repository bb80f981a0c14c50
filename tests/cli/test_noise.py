"""`mslg noise` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mslg.cli.app import app
from mslg.registry import UnknownName
from mslg.runs.open_data import open_data
from tests.support.command import mslg


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    label = np.repeat(np.array(["ant", "bee", "cow"]), 40)
    points = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    np.savez("data.npz", X=points + np.repeat(np.arange(3), 40)[:, None], y=label, id=[f"n{i}" for i in range(120)])
    return tmp_path


def noise(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["noise", "data.npz", "-o", "noisy.parquet", "--json", *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_labels_and_a_picture_are_written(here: Path) -> None:
    done = mslg("noise", "data.npz", "--kind", "uniform", "--rate", "0.4", "-o", "noisy.parquet", cwd=here)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "48 of 120 labels changed, 40.00 % (asked for 40.00 %): noisy.parquet, noisy.png\n"
    table = pd.read_parquet(here / "noisy.parquet")
    assert list(table.columns) == ["id", "label", "true_label", "changed"]
    assert table["true_label"].tolist() == ["ant"] * 40 + ["bee"] * 40 + ["cow"] * 40
    assert set(table["label"]) == {"ant", "bee", "cow"}
    assert table["changed"].tolist() == (table["label"] != table["true_label"]).tolist()
    assert table["changed"].sum() == 48
    metadata = pq.read_schema(here / "noisy.parquet").metadata
    assert metadata[b"format_version"] == b"1"
    about = json.loads(metadata[b"noise"])
    assert (about["kind"], about["rate"], about["seed"], about["realised_rate"]) == ("uniform", 0.4, 0, 0.4)
    assert (here / "noisy.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_seed_gives_the_same_labels_and_nothing_is_overwritten_unasked(here: Path) -> None:
    noise("--kind", "pair", "--rate", "0.3")
    first = pd.read_parquet("noisy.parquet")
    for name in ("noisy.parquet", "noisy.png"):
        with pytest.raises(FileExistsError, match="already exists; choose another name, or overwrite with --force"):
            noise("--kind", "pair", "--rate", "0.3", "--seed", "1")
        Path(name).unlink()
    noise("--kind", "pair", "--rate", "0.3")
    assert pd.read_parquet("noisy.parquet").equals(first)
    noise("--kind", "pair", "--rate", "0.3", "--seed", "1", "--force")
    assert not pd.read_parquet("noisy.parquet").equals(first)


KINDS: dict[str, tuple[str, ...]] = {
    "uniform": ("--set", "convention=exact-including"),
    "pair": ("--set", "exact=false"),
    "class-map": ("--set", "mapping={0 = 1, 2 = 1}"),
    "matrix": ("--set", "transition=[[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]]"),
    "confusion": ("--set", "confusion=counts.csv"),
    "feature-dependent": ("--set", "epochs=1", "--set", "network.hidden=[8]", "--set", "cache=trainable_networks.npz"),
    "feature-dependent-released": ("--probabilities", "probabilities.npy"),
    "locally-concentrated": ("--set", "clusters=5"),
    "instance-dependent": ("--set", "input_scale=1.0"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_runs_with_its_settings(kind: str, here: Path) -> None:
    np.savetxt("counts.csv", [[9, 1, 0], [0, 8, 2], [3, 0, 7]], delimiter=",")
    np.save("probabilities.npy", np.random.default_rng(0).dirichlet(np.ones(3), 120))
    found = noise("--kind", kind, "--rate", "0.3", *KINDS[kind])
    assert 0.1 < found["realised_rate"] < 0.45
    assert np.sum(found["realised"], axis=1).tolist() == pytest.approx([1, 1, 1])
    assert found["samples"] == 120
    assert pd.read_parquet("noisy.parquet")["changed"].mean() == found["realised_rate"]


def test_given_probabilities_replace_the_training_of_a_network(here: Path) -> None:
    np.save("probabilities.npy", np.random.default_rng(0).dirichlet(np.ones(3), 120))
    found = noise("--kind", "feature-dependent", "--rate", "0.3", "--probabilities", "probabilities.npy")
    assert found["realised_rate"] == 0.3


def test_a_matrix_needs_no_rate(here: Path) -> None:
    found = noise("--kind", "matrix", "--set", "transition=[[1.0, 0, 0], [0, 0.5, 0.5], [0, 0, 1.0]]")
    assert found["realised_rate"] == pytest.approx(20 / 120)


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "kind": (("--kind", "unifrom", "--rate", "0.3"), "unknown noise 'unifrom'. Did you mean 'uniform'?"),
    "setting": (
        ("--kind", "uniform", "--rate", "0.3", "--set", "convenion=exact"),
        "unknown setting of uniform noise 'convenion'. Did you mean 'convention'?",
    ),
    "no setting": (("--kind", "uniform", "--rate", "0.3", "--set", "fill"), "expected --set key=value"),
    "no rate": (("--kind", "uniform"), "this noise needs a rate"),
    "unasked probabilities": (
        ("--kind", "pair", "--rate", "0.3", "--probabilities", "p.npy"),
        "unknown setting of pair noise 'probabilities'",
    ),
    "unasked network": (("--kind", "pair", "--rate", "0.3", "--set", "network.hidden=[8]"), "trains no network here"),
    "no probabilities": (
        ("--kind", "feature-dependent-released", "--rate", "0.3"),
        "pass probabilities, an array of shape (samples, classes) or the path",
    ),
    "missing file": (
        ("--kind", "feature-dependent-released", "--rate", "0.3", "--probabilities", "p.npy"),
        "there is no file p.npy to read the probabilities from",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_clear_message(name: str, here: Path) -> None:
    words, message = WRONG[name]
    with pytest.raises((ValueError, FileNotFoundError, UnknownName)) as error:
        noise(*words)
    assert message in str(error.value)
    assert not Path("noisy.parquet").exists()


def test_the_output_must_be_a_parquet_file(here: Path) -> None:
    done = mslg("noise", "data.npz", "--kind", "pair", "--rate", "0.3", "-o", "noisy.csv", cwd=here)
    assert done.returncode == 2
    assert "must end in .parquet" in done.stderr


def test_the_help_ends_with_an_example() -> None:
    assert "mslg noise digits" in mslg("noise", "--help").stdout.split("Options")[0].partition("Example")[2]


def test_training_data_may_be_corrupted_by_noise_that_looks_at_the_inputs(here: Path) -> None:
    opened = open_data({"source": "data.npz", "noise": "locally-concentrated", "rate": 0.5})
    assert opened.noise_rate == pytest.approx(0.5, abs=0.1)
    assert opened.train.true_label is not None


def test_noise_that_needs_more_than_the_data_takes_it_from_its_own_settings(here: Path) -> None:
    settings = {"source": "data.npz", "noise": "matrix", "rate": 0.5}
    with pytest.raises((TypeError, ValueError), match="transition"):
        open_data(settings)
    size = len(open_data({"source": "data.npz"}).train.classes)
    opened = open_data(settings, noise_settings={"transition": np.roll(np.eye(size), 1, axis=1)})
    assert opened.noise_rate == pytest.approx(0.5, abs=0.1)
    # Without a rate the matrix is taken as it is.
    given = 0.8 * np.eye(size) + 0.2 * np.roll(np.eye(size), 1, axis=1)
    opened = open_data({"source": "data.npz", "noise": "matrix"}, noise_settings={"transition": given})
    assert opened.noise_rate == pytest.approx(0.2, abs=0.05)

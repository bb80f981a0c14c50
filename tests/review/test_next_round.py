"""Round again in one call: `mslg.fit(…, from_run=…, decisions=…)`."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

import mslg
from mslg.data.source import make_source
from mslg.review.decisions import COLUMNS
from mslg.review.next_round import Round
from mslg.runs.checkpoint import load_state
from mslg.runs.folder import Run
from tests.support.blobs import blobs, same_state, small_network

DATA = blobs(samples=300, clean=700)
IDS = [f"n{number}" for number in range(300)]
NOISY = make_source(DATA.x, DATA.given, ids=IDS, true_labels=DATA.true)
CLEAN = make_source(DATA.clean_x, DATA.clean_y, ids=[f"c{number}" for number in range(700)])
FAST: dict[str, Any] = {"epochs": 6, "batch_size": 32, "progress": False, "test": (DATA.test_x, DATA.test_y)}


def fit(**settings: Any) -> mslg.Result:
    return mslg.fit(small_network, settings.pop("noisy", NOISY), settings.pop("clean", CLEAN), **{**FAST, **settings})


def write(path: Path, rows: list[tuple[str, ...]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return path


def true_decisions(path: Path, labels: pd.DataFrame) -> Path:
    """What a reviewer who is never wrong decides about these rows."""
    rows = []
    for row in labels.itertuples():
        label = str(DATA.true[IDS.index(str(row.id))])
        kind = "keep" if label == row.given_label else "accept" if label == row.suggested_label else "relabel"
        rows.append((str(row.id), kind, label, str(row.given_label), str(row.suggested_label)))
    return write(path, rows)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> mslg.Result:
    return fit(output=tmp_path_factory.mktemp("rounds") / "first")


def folder(result: mslg.Result) -> Path:
    assert result.run is not None
    return result.run.path


def test_a_second_round(first: mslg.Result, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mslg")
    worst = first.labels.sort_values("rank").head(20)
    decisions = true_decisions(tmp_path / "d.csv", worst)
    with decisions.open("a", newline="") as file:
        csv.writer(file).writerows([("n0" if "n0" not in set(worst["id"]) else "n1", "remove", "", "", "")])
    result = fit(from_run=folder(first), decisions=decisions, epochs=None, output=tmp_path / "second")
    assert "2 epochs, a third of those of" in caplog.text
    assert "20 reviewed samples join the clean set, 1 are removed" in caplog.text
    assert len(result.history) == 2
    assert len(result.labels) == 300 - 21
    assert not set(result.labels["id"]) & set(worst["id"])
    assert result.summary["clean_samples"] == {"meta": 620, "select": 50, "report": 50}
    assert "reviewed/loss" in result.history
    division = pq.read_table(tmp_path / "second" / "division.parquet").to_pandas()
    assert division.groupby("part").size().to_dict() == {"meta": 600, "select": 50, "report": 50, "reviewed": 20}
    assert set(division[division["part"] == "reviewed"]["id"]) == set(worst["id"])
    assert division["in_data"].sum() == 20


def test_rounds_add_up(first: mslg.Result, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mslg")
    rows = first.labels.sort_values("rank")
    one = true_decisions(tmp_path / "1.csv", rows.iloc[:10])
    two, three = (
        true_decisions(tmp_path / "2.csv", rows.iloc[10:15]),
        true_decisions(tmp_path / "3.csv", rows.iloc[15:18]),
    )
    fit(from_run=first, decisions=one, epochs=2, output=tmp_path / "second")
    result = fit(from_run=tmp_path / "second", decisions=[two, three], epochs=None, output=tmp_path / "third")
    assert len(result.labels) == 300 - 18
    assert len(result.history) == 2
    assert "2 epochs, as many as" in caplog.text, "rounds must not grow shorter and shorter"
    assert len((tmp_path / "third" / "decisions.csv").read_text().splitlines()) == 19


def test_the_earlier_network_is_where_it_starts(first: mslg.Result) -> None:
    before = first.summary["last"]["test/accuracy"]
    again = fit(from_run=first, epochs=1, learning_rate=1e-9)
    assert again.summary["last"]["test/accuracy"] == pytest.approx(before, abs=0.02)
    cold = fit(epochs=3, learning_rate=1e-9)
    assert cold.summary["last"]["test/accuracy"] < before - 0.2


def test_decisions_alone_train_anew_with_more_clean_samples(first: mslg.Result, tmp_path: Path) -> None:
    decisions = true_decisions(tmp_path / "d.csv", first.labels.sort_values("rank").head(30))
    result = fit(decisions=decisions)
    assert result.summary["clean_samples"]["meta"] == 630
    assert len(result.history) == 6


def test_a_run_killed_in_its_second_round_resumes_to_the_bit(first: mslg.Result, tmp_path: Path) -> None:
    decisions = true_decisions(tmp_path / "d.csv", first.labels.sort_values("rank").head(20))
    shutil.copytree(folder(first), tmp_path / "first")
    settings = {"from_run": tmp_path / "first", "epochs": 3}
    whole = fit(**settings, decisions=decisions, output=tmp_path / "whole")

    class Stop(Exception):
        pass

    class Killer(mslg.training.progress.Silent):  # type: ignore[name-defined, misc]
        def epoch(self, record: Any) -> None:
            if record.epoch == 1:
                raise Stop

    with pytest.raises(Stop):
        fit(**settings, decisions=decisions, output=tmp_path / "killed", progress=Killer())
    (tmp_path / "d.csv").unlink()
    shutil.rmtree(tmp_path / "first")  # what was taken over is in the checkpoint, the decisions in the folder
    resumed = fit(**settings, output=tmp_path / "killed", resume=True)
    assert resumed.history["train/loss"].tolist() == whole.history["train/loss"].tolist()
    states = [load_state(tmp_path / name / "checkpoint" / "state.safetensors") for name in ("whole", "killed")]
    assert same_state(*states)


def test_a_round_killed_before_its_first_checkpoint_resumes_from_another_folder(
    first: mslg.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    shutil.copytree(folder(first), "runs/first")
    fit(from_run="runs/first", epochs=2, output="runs/second")
    whole = Path("runs/second/metrics.jsonl").read_bytes()
    shutil.rmtree("runs/second/checkpoint")
    for file in ("done", "metrics.jsonl", "timing.jsonl"):
        (Path("runs/second") / file).unlink()
    monkeypatch.chdir(tmp_path)
    settings = {"from_run": "runs/first", "epochs": 2, "output": "here/runs/second", "resume": True}
    fit(**settings)
    assert Path("here/runs/second/metrics.jsonl").read_bytes() == whole

    shutil.rmtree("here/runs/second/checkpoint")
    shutil.rmtree("here/runs/first")
    with pytest.raises(
        FileNotFoundError, match=rf"neither relative to {tmp_path} nor to {tmp_path}/here/runs/second or"
    ):
        fit(**settings)


def test_a_resumed_run_refuses_other_decisions(first: mslg.Result, tmp_path: Path) -> None:
    rows = first.labels.sort_values("rank")
    one, two = (true_decisions(tmp_path / f"{n}.csv", rows.iloc[n : n + 5]) for n in (0, 5))
    fit(from_run=first, decisions=one, epochs=2, output=tmp_path / "run")
    with pytest.raises(ValueError, match=r"was started with data.decisions_fingerprint"):
        fit(from_run=first, decisions=two, epochs=2, output=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noisy": make_source(DATA.x, DATA.true, ids=IDS)}, "the data or its given labels are not those on which"),
        (
            {"seed": 1},
            r"clean samples are not those of .* or are split differently \(its seed was 0, now it is 1\)",
        ),
        ({"clean": CLEAN.at(torch.arange(690))}, "the clean samples are not those of"),
        (
            {"method": "pencil"},
            r"was trained by cross-fitted and cannot be used as a warm start for pencil; pass method= \(--method\)",
        ),
        ({"from_run": "nowhere"}, "nowhere is not a run's folder"),
    ],
)
def test_what_cannot_be_gone_on_from_is_refused(first: mslg.Result, settings: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        fit(**{"from_run": first, "epochs": 2, **settings})


def test_another_network_is_refused(first: mslg.Result) -> None:
    other = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    with pytest.raises(ValueError, match="cannot be used as a warm start with this network and these settings"):
        mslg.fit(other, NOISY, CLEAN, **{**FAST, "from_run": first, "epochs": 2})


def test_an_unfinished_run_or_one_without_a_folder_is_no_start(first: mslg.Result, tmp_path: Path) -> None:
    shutil.copytree(folder(first), tmp_path / "cut")
    (tmp_path / "cut" / "done").unlink()
    with pytest.raises(ValueError, match=r"is not finished .*; finish it: mslg fit -o .*cut --resume"):
        fit(from_run=tmp_path / "cut")
    with pytest.raises(ValueError, match="without a folder; fit with output="):
        fit(from_run=fit(epochs=3))


def test_bad_decisions_stop_the_run_before_it_begins(tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.csv", [("n1", "acept", "", "", ""), ("zzz", "remove", "", "", "")])
    with pytest.raises(ValueError, match=r"has 2 problems:(?s:.*)Did you mean 'accept'(?s:.*)'zzz' is not in the data"):
        fit(decisions=bad, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_reviewed_samples_take_the_place_of_a_clean_set_that_was_guessed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guessed = fit(clean="auto", output=tmp_path / "auto")
    decisions = true_decisions(tmp_path / "d.csv", guessed.labels.sort_values("rank").head(24))
    result = fit(clean="auto", from_run=guessed, decisions=decisions, epochs=2, output=tmp_path / "next")
    assert "the 24 reviewed samples now serve as the clean set" in caplog.text
    assert result.summary["clean_samples"]["meta"] == 24
    assert result.method.excluded() is None
    assert len(fit(clean="auto", from_run=guessed, epochs=2).labels) == 300, "without decisions it stays as it was"


def test_methods_without_a_use_for_clean_samples_learn_from_reviewed_ones(tmp_path: Path) -> None:
    wrong = np.flatnonzero(DATA.given != DATA.true)[:60]
    rows = [(IDS[p], "relabel", str(DATA.true[p]), "", "") for p in wrong]
    result = fit(method="cross-entropy", decisions=write(tmp_path / "d.csv", rows))
    assert "reviewed/loss" in result.history
    assert len(result.labels) == 240


def test_what_a_round_records_is_enough_to_know_it_again(first: mslg.Result, tmp_path: Path) -> None:
    fit(from_run=first, epochs=2, output=tmp_path / "next")
    train = Run.open(tmp_path / "next").config["train"]
    assert train["from_run"] == str(folder(first))
    assert len(train["from_run_fingerprint"]) == 16
    assert Round.open(first, None, NOISY).settings["train"] == {
        key: train[key] for key in ("from_run", "from_run_fingerprint")
    }

"""With too few clean samples to hold any out, the default is compared with its own parts on samples none has seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mslg
from mslg.data.source import make_source
from mslg.review.report import write_report
from mslg.runs.controls.catalog import CONTROLS
from mslg.runs.controls.verdict import Answers, judge
from tests.support.blobs import blobs, small_network

DATA = blobs(samples=300)
PAIRED = make_source(DATA.x, DATA.given, verified_labels=DATA.true)
NAMES = {"noisy-then-clean", "clean-only", "gold-correction"}
FAST: dict[str, Any] = {"epochs": 6, "batch_size": 32, "progress": False, "compare": True}
SEEN_BY_NONE = "clean samples, each predicted by networks that have not seen it"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> mslg.Result:
    return mslg.fit(small_network, PAIRED, 60, output=tmp_path_factory.mktemp("few") / "run", **FAST)


def folder_of(result: mslg.Result) -> Path:
    assert result.run is not None
    return result.run.path


def test_sixty_clean_samples_are_compared_on(run: mslg.Result) -> None:
    found = run.summary["comparison"]
    assert (found["samples"], found["out_of_fold"], found["left_out"]) == (60, True, [])
    assert {row["name"] for row in found["controls"]} == NAMES
    assert found["best"] in NAMES
    shown = next(row["low"] for row in found["controls"] if row["name"] == found["best"]) > 0
    assert found["verdict"].startswith("It helped: +" if shown else "No difference shown.")
    share = (
        f"right on {100 * found['accuracy']:.1f} % of 60 clean samples (cross-validated); its best component alone ("
    )
    assert share in found["verdict"]
    assert "held-out" not in found["verdict"]
    for row in found["controls"]:
        assert row["words"] == CONTROLS[row["name"]].words
        assert row["use"] == f"--method {row['name']}"
        assert row["difference"] == pytest.approx(found["accuracy"] - row["accuracy"])
        assert row["low"] <= row["difference"] <= row["high"]
    assert json.loads((folder_of(run) / "summary.json").read_text())["comparison"] == found


def test_the_numbers_are_those_of_the_networks_that_have_not_seen_a_sample(run: mslg.Result) -> None:
    found, clean = run.summary["comparison"], run.outcome.data.clean
    assert clean is not None
    own = run.method.unseen_clean(clean)
    assert own is not None
    assert found["accuracy"] == pytest.approx(float((own.argmax(1) == clean.label).double().mean()))
    parts = run.method.unseen_controls(clean)
    for row in found["controls"]:
        right = (parts[row["name"]] == clean.label).double().mean()
        assert row["accuracy"] == row["select_accuracy"] == pytest.approx(float(right))


def test_no_control_is_trained(run: mslg.Result) -> None:
    assert not (folder_of(run) / "controls").exists()


def test_the_page_says_what_was_measured_on(run: mslg.Result) -> None:
    text = write_report(folder_of(run)).read_text()
    assert f"Measured on 60 {SEEN_BY_NONE}." in text
    assert "held-out clean samples." not in text


def test_a_resumed_run_says_the_same(run: mslg.Result) -> None:
    again = mslg.fit(small_network, PAIRED, 60, output=folder_of(run), resume=True, **FAST)
    assert again.summary["comparison"] == run.summary["comparison"]
    assert again.summary["label_errors"] == run.summary["label_errors"]


def test_a_warm_start_keeps_the_predictions_of_the_folds(run: mslg.Result) -> None:
    warm = mslg.fit(small_network, PAIRED, 60, from_run=run, fdr=0.3, **{**FAST, "epochs": 2})
    assert warm.summary["comparison"] == run.summary["comparison"]
    assert (warm.summary["label_errors"]["samples"], warm.summary["label_errors"]["fdr"]) == (60, 0.3)


def test_without_clean_samples_there_is_nothing_to_compare_on() -> None:
    found = mslg.fit(small_network, PAIRED, "auto", **{**FAST, "epochs": 3}).summary["comparison"]
    assert found["verdict"].startswith("not compared: there are no clean samples")
    assert (found["helped"], found["samples"], found["controls"]) == (None, 0, [])


@pytest.mark.parametrize(("right", "helped"), [(60, True), (30, None), (0, False)])
def test_the_verdict_out_of_fold(right: int, helped: bool | None) -> None:
    half = torch.arange(60) % 2 == 0
    own = half if right == 30 else torch.full((60,), right == 60)
    words = [Answers(name, CONTROLS[name].words, half, 0.5, f"--method {name}") for name in sorted(NAMES)]
    found = judge("cross-fitted", own, words, select=0)
    assert (found["helped"], found["out_of_fold"]) == (helped, True)
    assert "of 60 clean samples (cross-validated); its best component alone (" in found["verdict"]
    assert judge("cross-fitted", own, words, select=40)["out_of_fold"] is False

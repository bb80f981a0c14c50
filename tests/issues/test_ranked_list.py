"""The training labels ranked by the finished network, with an error rate."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import mslg
from mslg.data.make_splits import make_splits
from mslg.data.source import Source, make_source
from mslg.data.splits import Splits
from mslg.issues.error_rate import NOT_HELD_OUT
from mslg.issues.from_training import predict_training_samples, rank_training_labels
from mslg.issues.label_rows import label_frame
from mslg.methods.cross_entropy import CrossEntropy
from mslg.review.decisions import Decision
from mslg.review.reviewed_samples import with_reviewed
from mslg.training.loop import Position, train
from mslg.training.method import Task
from mslg.training.prediction_history import PredictionHistory
from tests.support.blobs import blobs, small_network

KEYS = ["basis", "samples", "fdr", "why", "share", "count", "precision", "flagged"]


def noisy(samples: int = 900, rate: float = 0.3) -> Source:
    data = blobs(samples=samples, rate=rate)
    return make_source(data.x, data.given, true_labels=data.true, verified_labels=data.true)


def fit(source: Source | None = None, clean: Any = 240, **settings: Any) -> Any:
    settings = {"method": "cross-entropy", "epochs": 8, "batch_size": 32, "progress": False, **settings}
    return mslg.fit(small_network, noisy() if source is None else source, clean, **settings)


def trained(source: Source, clean: Any) -> tuple[CrossEntropy, Splits, PredictionHistory]:
    data = make_splits(source, clean, batch_size=32, seed=1)
    method = CrossEntropy(Task(source.label, 4, small_network, 4, 32, pairs=data.pairs, seed=1))
    position = Position(PredictionHistory(source.label, 4))
    for _ in train(method, data, epochs=4, position=position):
        pass
    return method, data, position.history


def wrong_of(source: Source, labels: pd.DataFrame) -> np.ndarray:
    assert source.true_label is not None
    places = [source.ids.index(name) for name in labels["id"]]
    return (source.label[places] != source.true_label[places]).numpy()


def test_the_finished_network_looks_once_more_at_every_training_sample() -> None:
    source = noisy(480)
    method, data, history = trained(source, 220)
    index = data.train.index
    before = history.said(index)
    assert torch.equal(before, history.mean[index]), "until then the mean stands in"
    method.eval()
    predict_training_samples(method, data, history)
    with torch.no_grad():
        expected = torch.cat([method.predict(batch.inputs).exp() for batch in data.in_order()])
    assert torch.allclose(history.said(index).float(), expected, atol=1e-3)
    assert not torch.equal(history.said(index).float(), before)
    again = history.said(index)
    method.train()
    rank_training_labels(method, data, history)
    assert method.training, "as it was"
    assert torch.equal(history.said(index), again), "no dropout, so the same again"
    assert "final" not in history.state_dict(), "found anew by whoever resumes"


def test_the_ranking_weighs_what_the_finished_network_says() -> None:
    source = noisy(480)
    method, data, history = trained(source, 220)
    history.visits[data.train.index[:50]] = torch.zeros(50)
    issues = rank_training_labels(method, data, history)
    assert history.final is not None
    index = data.train.index[50:]
    expected = issues.posterior.log_odds(history.final[index], source.label[index])
    assert torch.equal(issues.log_odds[50:], expected)
    assert issues.log_odds[:50].isnan().all()
    assert issues.error_rate.samples == len(index)
    ranks = issues.ranks
    assert sorted(ranks.tolist()) == list(range(len(ranks)))
    assert (issues.log_odds[ranks.argsort()][: len(index)].diff() <= 0).all()
    assert ranks[:50].min() == len(index), "unknown ones come last"
    quality = issues.quality
    assert quality[:50].isnan().all()
    assert (quality[ranks.argsort()][: len(index)].diff() >= 0).all(), "the order of the list is that of the quality"
    assert issues.error_rate.calibration is not None
    share = float(issues.error_rate.calibration.share.mean())
    assert float(1 - quality[50:].mean()) == pytest.approx(share, rel=0.05), "and says how many are wrong"


def test_a_limit_makes_the_list_shorter() -> None:
    source = noisy(480)
    method, data, history = trained(source, 220)
    free = rank_training_labels(method, data, history)
    limited = replace(free, limit=20)
    flagged = limited.flagged
    assert torch.equal(flagged, free.ranks < 20)
    assert int(flagged.sum()) == 20 < int(free.flagged.sum())
    labels = label_frame(limited)
    assert labels["is_label_issue"].tolist() == flagged.tolist()
    assert (labels["suggested_label"] == labels["given_label"])[~labels["is_label_issue"]].all()
    told = limited.error_rate_summary()
    assert told["flagged"]["depth"] == int(flagged.sum())


@pytest.mark.parametrize("fdr", [0.05, 0.3])
def test_the_list_keeps_to_its_error_rate(fdr: float) -> None:
    source = noisy()
    result = fit(source, fdr=fdr)
    labels = result.labels
    issues = labels["is_label_issue"].to_numpy()
    assert issues.sum() > 30
    assert 1 - wrong_of(source, labels)[issues].mean() <= fdr + 0.05
    kept = labels[~labels["is_label_issue"]]
    assert (kept["suggested_label"] == kept["given_label"]).all()
    assert (labels["suggested_label"] != labels["given_label"])[issues].all()
    told = result.summary["label_errors"]
    assert list(told) == KEYS
    assert told["fdr"] == fdr
    assert told["flagged"]["depth"] == issues.sum() == result.summary["label_issues"]
    assert told["flagged"]["estimate"] >= 1 - fdr - 0.01


def test_the_summary_states_how_many_labels_are_wrong() -> None:
    source = noisy()
    result = fit(source)
    told = result.summary["label_errors"]
    assert list(told) == KEYS
    assert told == json.loads(json.dumps(told, allow_nan=False))
    assert (told["basis"], told["samples"], told["fdr"], told["why"]) == ("pairs", 96, None, None)
    wrong = wrong_of(source, result.labels)
    assert told["share"]["low"] - 0.02 <= wrong.mean() <= told["share"]["high"] + 0.02
    for step in told["precision"]:
        first = wrong[(result.labels["rank"] < step["depth"]).to_numpy()].mean()
        assert abs(step["estimate"] - first) < 0.2
    assert told["precision"][-1]["depth"] == len(result.labels) == 660
    issues = result.labels["is_label_issue"].to_numpy()
    assert told["flagged"]["depth"] == issues.sum()
    assert abs(told["flagged"]["estimate"] - wrong[issues].mean()) < 0.15
    matrix = np.array(result.summary["transition"])
    assert matrix.shape == (4, 4)
    assert matrix.sum(1) == pytest.approx(1, abs=1e-4)


def test_clean_samples_without_given_labels_serve_too() -> None:
    source = noisy()
    apart = blobs(clean=240, seed=5)
    result = fit(source, make_source(apart.clean_x, apart.clean_y), fdr=0.2)
    told = result.summary["label_errors"]
    assert (told["basis"], told["samples"]) == ("injected", 96)
    assert abs(told["share"]["estimate"] - wrong_of(source, result.labels).mean()) < 0.1
    issues = result.labels["is_label_issue"].to_numpy()
    assert 1 - wrong_of(source, result.labels)[issues].mean() < 0.3


@pytest.mark.parametrize("clean", [24, None, 0])
def test_an_error_rate_that_cannot_be_kept_is_refused_before_training(
    clean: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mslg.fitting.fit.execute", lambda *_, **__: pytest.fail("trained for nothing"))
    why = "there are no clean samples" if clean is None else "no clean samples are held out"
    settings: dict[str, Any] = {"clean": 240, "hold_out": False} if clean == 0 else {"clean": clean}
    with pytest.raises(ValueError, match=rf"fdr = 0\.1 cannot be kept: {why}.*leave fdr out"):
        fit(fdr=0.1, **settings)
    for fdr in (0, 1, 5.0, math.nan):
        with pytest.raises(ValueError, match="above 0 and below 1"):
            fit(fdr=fdr)


def test_without_held_out_samples_the_summary_says_why_it_states_nothing() -> None:
    told = fit(clean=24).summary["label_errors"]
    assert told == {
        "basis": "none",
        "samples": 0,
        "fdr": None,
        "why": NOT_HELD_OUT,
    }


def test_a_resumed_run_states_the_same(tmp_path: Path) -> None:
    source = noisy()
    first = fit(source, output=tmp_path / "run", fdr=0.1).summary["label_errors"]
    written = json.loads((tmp_path / "run" / "summary.json").read_text())["label_errors"]
    assert written == first
    assert fit(source, output=tmp_path / "run", fdr=0.1, resume=True).summary["label_errors"] == first
    assert fit(source, fdr=0.1).summary["label_errors"] == first, "and so does the same run elsewhere"
    longer = fit(source, output=tmp_path / "run", fdr=0.3, resume=True).summary["label_errors"]
    assert longer["flagged"]["depth"] >= first["flagged"]["depth"], "another list of the same run"
    assert longer["share"] == first["share"]


def test_reviewed_samples_are_no_evidence() -> None:
    """They were chosen because their labels look wrong: counted, they would say that most labels are."""
    source = noisy(480)
    method, data, history = trained(source, 220)
    before = rank_training_labels(method, data, history)
    assert source.true_label is not None
    chosen = data.train.index[:60]
    decisions = {
        source.ids[place]: Decision(
            id=source.ids[place],
            decision="relabel",
            label=source.classes[int(source.true_label[place])],
            given_label=source.classes[int(source.label[place])],
            suggested_label=source.classes[int(source.true_label[place])],
        )
        for place in chosen.tolist()
    }
    reviewed = with_reviewed(data, decisions)
    assert data.pairs is not None
    assert reviewed.pairs is not None
    assert reviewed.reviewed == 60
    assert all(torch.equal(*parts) for parts in zip(data.pairs, reviewed.pairs, strict=True))
    after = rank_training_labels(method, reviewed, history)
    assert after.error_rate.held_out == before.error_rate.held_out == 88
    assert torch.equal(after.posterior.weights, before.posterior.weights)
    assert torch.equal(after.posterior.log_columns, before.posterior.log_columns)
    assert after.error_rate.calibration is not None
    assert before.error_rate.calibration is not None
    found = int((source.label[chosen] != source.true_label[chosen]).sum())
    left = before.error_rate.calibration.share * len(data.train) - found
    assert torch.allclose(after.error_rate.calibration.share, (left / len(reviewed.train)).clamp(1e-4, 1 - 1e-4))
    assert after.error_rate.samples == before.error_rate.samples - 60


def test_a_issues_without_calibration_gives_the_posterior_as_quality() -> None:
    source = noisy(240)
    method, data, history = trained(source, None)
    issues = rank_training_labels(method, data, history)
    assert issues.error_rate.basis == "none"
    assert history.final is not None
    right = issues.posterior(history.final.rows, source.label).gather(1, source.label[:, None]).squeeze(1)
    assert torch.allclose(issues.quality, right, atol=1e-9)


def test_a_final_look_that_is_worse_than_the_passing_ones_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    source = noisy(480)
    method, data, history = trained(source, 220)
    fair = rank_training_labels(method, data, history)
    assert history.final is not None
    assert "is worse on its own training samples" not in caplog.text
    with torch.no_grad():
        for weight in method.network.parameters():
            weight.mul_(-1)  # says the opposite of what it has learned
    broken = rank_training_labels(method, data, history)
    assert history.final is None
    assert "is worse on its own training samples" in caplog.text
    index = data.train.index
    assert torch.equal(history.said(index), history.mean[index])
    assert fair.log_odds.shape == broken.log_odds.shape

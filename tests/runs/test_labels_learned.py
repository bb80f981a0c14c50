"""One sentence on how far labels have moved, or why they have not."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import mslg
from mslg.methods import METHODS
from mslg.runs.labels_learned import labels_learned
from mslg.training.loop import EpochRecord, train
from mslg.training.method import Method
from tests.support.blobs import blobs, small_network
from tests.support.method_problems import problem

PUBLISHED = {"prior": "given", "loss": "reverse-kl", "entropy_weight": 1.0, "label_rate": 15.0, "look_ahead": 0.5}


def trained(name: str, epochs: int = 6, stop: int | None = None, **settings: Any) -> tuple[Method, list[EpochRecord]]:
    task, data = problem(epochs=epochs)
    method = METHODS.load(name)(task, **settings)
    records = []
    for record in train(method, data, epochs=epochs):
        records.append(record)
        if len(records) == stop:
            break
    return method.eval(), records


def sentence(name: str, **settings: Any) -> str:
    method, records = trained(name, **settings)
    found = labels_learned(method, torch.arange(240), records)
    assert found is not None
    text: str = found["sentence"]
    return text


def test_moves_are_counted_entry_by_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    method, records = trained("mslg", **PUBLISHED)
    found = labels_learned(method, torch.arange(240), records)
    assert found is not None
    moves, changed = [], 0
    for index in range(240):
        given = int(method.task.given[index])
        start = torch.tensor([10.0 if c == given else 0.0 for c in range(4)]).softmax(0).tolist()
        learned = method.soft_labels(torch.tensor([index]))
        assert learned is not None
        row = learned[0].tolist()
        moves.append(sum(abs(a - b) for a, b in zip(start, row, strict=True)) / 2)
        changed += row.index(max(row)) != given
    assert found["mean"] == pytest.approx(sum(moves) / 240, rel=1e-5)
    assert found["largest"] == pytest.approx(max(moves), rel=1e-5)
    assert (found["moved"], found["changed_class"]) == (sum(move > 0.1 for move in moves), changed)
    assert changed > 0
    assert found["sentence"] == (
        f"soft labels, for training: {found['moved']} of 240 moved by more than 0.1 (mean {found['mean']:.2g}, total "
        f"variation), {changed} changed class; which given labels are flagged is decided afterwards, by all evidence"
    )
    monkeypatch.setattr("mslg.data.sample_table.PIECE", 7)
    assert labels_learned(method, torch.arange(240), records) == pytest.approx(found)


def test_the_reason_why_no_label_has_moved() -> None:
    assert sentence("mslg", label_rate=0.0, prior="matrix") == "the labels did not move: label_rate is 0"
    assert sentence("pencil", stop=1) == "the labels did not move: the run ended before label learning"
    small = sentence("mslg", prior="given")
    assert small.startswith("the labels did not move: the largest move was ")
    assert "because the step is too small: the label logits moved by" in small
    assert small.endswith(
        'per epoch; try a larger label_rate; with the prior "given" also loss="reverse-kl", as published'
    )


@pytest.mark.parametrize("name", ["elr", "joint-optimization", "pencil", "cross-fitted"])
def test_every_method_with_soft_labels_learns_some(name: str) -> None:
    faster = {"label_rate": 10.0} if name == "pencil" else {}  # six epochs are few
    assert sentence(name, **faster).startswith("soft labels, for training: ")


@pytest.mark.parametrize("prior", ["given", "matrix"])
def test_labels_start_at_the_prior_and_the_metric_is_the_distance_from_it(prior: str) -> None:
    method, records = trained("mslg", prior=prior, loss="reverse-kl", label_rate=5.0)
    index = torch.arange(240)
    assert records[-1].metrics["labels/moved"] > 0
    method.table.displacement.rows.zero_()  # type: ignore[union-attr, operator]
    assert torch.allclose(method.start_labels(index), method.soft_labels(index), atol=1e-6)  # type: ignore[arg-type]


def test_a_run_says_it_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    drawn = blobs(samples=64, clean=16)
    noisy, clean = (drawn.x, drawn.given), (drawn.clean_x, drawn.clean_y)
    with caplog.at_level(logging.INFO, logger="mslg"):
        mslg.fit(
            small_network,
            noisy,
            clean,
            method="mslg",
            epochs=3,
            label_rate=0.0,
            output=tmp_path / "run",
            progress=False,
        )
    text = "the labels did not move: label_rate is 0"
    assert [record.getMessage() for record in caplog.records].count(text) == 1
    learned = json.loads((tmp_path / "run" / "summary.json").read_text())["labels_learned"]
    assert (learned["sentence"], learned["samples"], learned["moved"]) == (text, 64, 0)
    plain = mslg.fit(small_network, noisy, epochs=2, method="cross-entropy", progress=False)
    assert "labels_learned" not in plain.summary

"""The evaluation's numbers against slow second versions."""

from __future__ import annotations

import math

import pytest
import torch

from mslg.data.make_splits import make_splits
from mslg.data.source import make_source
from mslg.methods.cross_entropy import CrossEntropy
from mslg.training.evaluation import Evaluation, calibration_error, confusion_matrix, scores, spread
from mslg.training.method import Task
from mslg.training.prediction_history import PredictionHistory

torch.manual_seed(0)
LOG_PROBS = torch.randn(200, 5).mul(2).log_softmax(1)
LABEL = torch.randint(0, 4, (200,))  # class 4 has no sample


def test_accuracy_and_its_mean_over_classes() -> None:
    predicted = LOG_PROBS.argmax(1).tolist()
    found = scores(LOG_PROBS, LABEL)
    assert found["accuracy"] == pytest.approx(sum(p == y for p, y in zip(predicted, LABEL.tolist(), strict=True)) / 200)
    by_class = []
    for c in range(4):
        members = [p for p, y in zip(predicted, LABEL.tolist(), strict=True) if y == c]
        by_class.append(sum(p == c for p in members) / len(members))
    assert found["macro_accuracy"] == pytest.approx(sum(by_class) / 4)
    losses = [-LOG_PROBS[i, y].item() for i, y in enumerate(LABEL.tolist())]
    assert found["loss"] == pytest.approx(sum(losses) / 200, rel=1e-6)


def test_calibration_error() -> None:
    bins: dict[int, list[tuple[float, float]]] = {}
    for row, y in zip(LOG_PROBS, LABEL.tolist(), strict=True):
        confidence = math.exp(row.max().item())
        bins.setdefault(min(int(confidence * 15), 14), []).append((confidence, float(row.argmax().item() == y)))
    expected = sum(abs(sum(c for c, _ in b) - sum(r for _, r in b)) for b in bins.values()) / 200
    right = (LOG_PROBS.argmax(1) == LABEL).double()
    assert calibration_error(LOG_PROBS, right) == pytest.approx(expected, rel=1e-6)


def test_a_perfect_and_certain_prediction_is_calibrated() -> None:
    certain = torch.eye(3).mul(100).log_softmax(1)
    assert scores(certain, torch.arange(3))["calibration_error"] == pytest.approx(0, abs=1e-9)


def test_confusion_matrix() -> None:
    matrix = confusion_matrix(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 2]), 3)
    assert matrix.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]


def test_spread_counts_classes_in_effect() -> None:
    assert spread(torch.tensor([0, 1, 2, 3]), 4) == pytest.approx(4)
    assert spread(torch.tensor([2, 2, 2]), 4) == pytest.approx(1)
    assert 1 < spread(torch.tensor([0, 0, 0, 1]), 4) < 2


def test_of_very_many_samples_a_fair_draw_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    given, true = torch.arange(4_000) % 2, torch.zeros(4_000, dtype=torch.int64)
    data = make_splits(make_source(torch.randn(4_000, 3), given), None)
    method = CrossEntropy(Task(given, 2, torch.nn.Linear(3, 2), epochs=1))
    history = PredictionHistory(given, 2)
    history.fold(torch.arange(4_000), torch.eye(2)[torch.arange(4_000) % 4 // 3].clamp_min(1e-9).log())
    evaluation = Evaluation(data, true_label=true)
    whole = evaluation.label_scores(method, history)
    assert whole["given/accuracy"] == 0.5
    assert whole["predictions/accuracy"] == 0.75
    monkeypatch.setattr("mslg.training.evaluation.EXAMINED", 1_000)
    some = evaluation.label_scores(method, history)
    assert some == evaluation.label_scores(method, history)
    assert 0 < abs(some["given/accuracy"] - 0.5) < 0.06
    assert some["predictions/accuracy"] == pytest.approx(0.75, abs=0.06)

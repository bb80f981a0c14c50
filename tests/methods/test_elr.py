"""Early-learning regularisation."""

from __future__ import annotations

import math

import pytest
import torch

from mslg.methods.cross_entropy import CrossEntropy
from mslg.methods.elr import ELR
from tests.support.blobs import same_state
from tests.support.method_problems import (
    GIVEN,
    LOGITS,
    Problem,
    accuracy,
    check_resume,
    check_step,
    example,
    identity_task,
    no_clean,
    problem,
)
from tests.support.method_problems import run as train_all

TARGETS = [
    [0.1977003416657904, 0.07272989121141418, 0.029569767122795458],
    [0.013983786773392171, 0.005144347663656118, 0.2808718655629518],
]


def build(**settings: float) -> Problem:
    task, data = problem(clean=None)
    return ELR(task, **settings), data


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_first_step(order: tuple[int, ...]) -> None:
    method = ELR(identity_task())
    result = method.step(example(order), no_clean())
    assert float(result.scalars["penalty"]) == pytest.approx(-0.23480990490429415, abs=1e-7)
    assert float(result.scalars["loss"]) == pytest.approx(1.537027245304749, abs=1e-6)
    for row, expected in zip(method.target.rows.tolist(), TARGETS, strict=True):
        assert row == pytest.approx(expected, abs=1e-7)


def test_the_update_of_a_second_step() -> None:
    """With loops, and the gradient by central differences of the loss with the targets held still."""
    method = ELR(identity_task())
    method.target.rows.copy_(torch.tensor(TARGETS))
    method.step(example(), no_clean())

    def probabilities(row: list[float]) -> list[float]:
        powers = [math.exp(value) for value in row]
        return [power / sum(powers) for power in powers]

    targets = []
    for old, logits in zip(TARGETS, LOGITS.tolist(), strict=True):
        targets.append([0.7 * t + 0.3 * p for t, p in zip(old, probabilities(logits), strict=True)])
    for row, expected_row in zip(method.target.rows.tolist(), targets, strict=True):
        assert row == pytest.approx(expected_row, abs=1e-6)

    def loss(logits: list[list[float]]) -> float:
        total = 0.0
        for row, label, target in zip(logits, GIVEN.tolist(), targets, strict=True):
            p = probabilities(row)
            total += -math.log(p[label]) + 3 * math.log(1 - sum(a * b for a, b in zip(p, target, strict=True)))
        return total / 2

    expected = torch.eye(3, dtype=torch.float64)
    for sample in range(2):
        for c in range(3):
            ahead, behind = LOGITS.tolist(), LOGITS.tolist()
            ahead[sample][c] += 1e-6
            behind[sample][c] -= 1e-6
            expected[c] -= (loss(ahead) - loss(behind)) / 2e-6 * LOGITS[sample]
    assert torch.allclose(method.network.weight, expected, atol=1e-6)  # type: ignore[arg-type]


def test_without_weight_it_is_cross_entropy() -> None:
    states = []
    for method_class, settings in ((CrossEntropy, {}), (ELR, {"weight": 0.0})):
        task, data = problem(epochs=2)
        method = method_class(task, **settings)  # type: ignore[arg-type]
        train_all(method, data)
        states.append(method.network.state_dict())
    assert same_state(*states)


def test_soft_labels_are_distributions_and_begin_as_given() -> None:
    method, data = build()
    index = torch.arange(240)
    fresh = method.soft_labels(index)
    assert fresh is not None
    assert torch.equal(fresh.argmax(1), method.task.given)
    train_all(method, data)
    learned = method.soft_labels(index)
    assert learned is not None
    assert torch.allclose(learned.sum(1), torch.ones(240))
    assert (learned.argmax(1) != method.task.given).float().mean() > 0.1


def test_only_the_rows_of_the_batch_change() -> None:
    method, data = build()
    batch = next(iter(data.batches(0)))
    method.step(batch, no_clean())
    touched = method.target.rows.sum(1) > 0  # type: ignore[union-attr, operator]
    assert sorted(touched.nonzero().flatten().tolist()) == sorted(batch.index.tolist())


def test_it_learns_and_its_steps_stay_on_the_device() -> None:
    method, data = build()
    train_all(method, data)
    assert accuracy(method) > 0.8
    check_step(method, data)


def test_a_run_resumes_exactly() -> None:
    check_resume(build, 21)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_momentum": 1.0}, "target_momentum is 1.0; it must be at least 0 and below 1"),
        ({"weight": -1.0}, "weight is -1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ELR(identity_task(), **settings)

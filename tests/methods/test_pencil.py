"""PENCIL: its loss, the closed form of the label update, and the three stages."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from mslg.methods.cross_entropy import CrossEntropy
from mslg.methods.pencil import Pencil
from mslg.training.schedules import cosine
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
from tests.support.toy import close, differences, go_to

LABEL_LOGITS = torch.tensor([[10.0, 0.0, 0.0], [1.0, 2.0, 0.5]], dtype=torch.float64)
LEARNING, FIXED = 4, 8  # epochs of the nine-epoch task in the second and the third stage


def build(**settings: Any) -> Problem:
    task, data = problem(clean=None, epochs=8, schedule=cosine)
    return Pencil(task, **settings), data


def softmax(row: list[float]) -> list[float]:
    powers = [math.exp(value) for value in row]
    return [power / sum(powers) for power in powers]


def slow_loss(logits: Tensor, label_logits: Tensor, alpha: float, beta: float, official: bool) -> float:
    total = 0.0
    for z, u, label in zip(logits.tolist(), label_logits.tolist(), GIVEN.tolist(), strict=True):
        p, soft = softmax(z), softmax(u)
        for c in range(3):
            total += p[c] * (math.log(p[c]) - math.log(soft[c])) / 3 - beta * p[c] * math.log(p[c]) / 3
        total -= alpha * math.log(softmax(soft)[label] if official else soft[label])
    return total / 2


def test_the_loss_has_the_hand_checked_values() -> None:
    arguments = LOGITS.log_softmax(1), LABEL_LOGITS.log_softmax(1), GIVEN
    paper = float(Pencil(identity_task(), alpha=0.1, beta=0.8).training_loss(*arguments))
    code = float(Pencil(identity_task(), alpha=0.1, beta=0.8, official_lo=True).training_loss(*arguments))
    assert paper == pytest.approx(0.8734246274742254)
    assert code == pytest.approx(0.9191126533657482)
    without = float(Pencil(identity_task(), alpha=0, beta=0.8).training_loss(*arguments))
    assert 10 * (paper - without) == pytest.approx(0.23222978992270607)
    assert 10 * (code - without) == pytest.approx(0.6891100488379338)


@pytest.mark.parametrize("official", [False, True])
def test_the_label_gradient_is_that_of_the_slow_loss(official: bool) -> None:
    method = Pencil(identity_task(), official_lo=official)
    label_logits = LABEL_LOGITS.clone()
    label_logits[0, 0] = 2.0  # less saturated, so that differences are exact enough
    found = method.label_direction(LOGITS.log_softmax(1), label_logits.log_softmax(1), GIVEN) / 6
    slow = differences(lambda: slow_loss(LOGITS, label_logits, 0.4, 0.1, official), [label_logits])
    assert close([found], slow, 1e-8)
    leaf = label_logits.requires_grad_()
    loss = method.training_loss(LOGITS.log_softmax(1), leaf.log_softmax(1), GIVEN)
    assert float(loss.detach()) == pytest.approx(slow_loss(LOGITS, label_logits, 0.4, 0.1, official))
    assert close([found], torch.autograd.grad(loss, leaf), 1e-12)


def test_without_the_pull_to_the_given_label_the_gradient_is_label_minus_prediction() -> None:
    found = Pencil(identity_task(), alpha=0).label_direction(LOGITS.log_softmax(1), LABEL_LOGITS.log_softmax(1), GIVEN)
    expected = [
        [0.34090806949837305, -0.24238757489688442, -0.09852049460148866],
        [0.18461127504417518, 0.611383893666242, -0.7959951687104173],
    ]
    assert found.tolist() == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1,)])
def test_one_step_of_the_second_stage(order: tuple[int, ...]) -> None:
    """Labels and network move by their own gradients at the same point, and only the batch's labels move."""
    method = Pencil(identity_task(), alpha=0.2, beta=0.5, label_rate=0.7, start=2.0)
    go_to(method, LEARNING)
    assert method.learning_rate() == 1.0
    result = method.step(example(order), no_clean())
    label_logits = 2.0 * torch.eye(3, dtype=torch.float64)[GIVEN]
    rows = []
    for sample in (0, 1):
        p, soft = softmax(LOGITS[sample].tolist()), softmax(label_logits[sample].tolist())
        pull = [0.2 * 3 * (soft[c] - (c == int(GIVEN[sample]))) for c in range(3)]
        move = [-0.7 * (soft[c] - p[c] + pull[c]) for c in range(3)]
        rows.append(move if sample in order else [0.0] * 3)
    assert method.table.displacement.rows.tolist() == [pytest.approx(row, abs=1e-6) for row in rows]
    if len(order) == 2:
        assert float(result.scalars["loss"]) == pytest.approx(slow_loss(LOGITS, label_logits, 0.2, 0.5, False))
        logits = LOGITS.clone()
        (slope,) = differences(lambda: slow_loss(logits, label_logits, 0.2, 0.5, False), [logits])
        expected = torch.eye(3, dtype=torch.float64) - slope.T @ LOGITS
        assert torch.allclose(method.network.weight, expected, atol=1e-7)
        assert float(result.scalars["labels/step"]) == pytest.approx(sum(abs(v) for r in rows for v in r) / 2, rel=1e-5)


def test_with_nothing_but_the_divergence_labels_stay_and_the_loss_is_a_share_of_it() -> None:
    method = Pencil(identity_task(), alpha=0, beta=0, label_rate=0)
    go_to(method, LEARNING)
    loss = float(method.step(example(), no_clean()).scalars["loss"])
    assert not method.table.displacement.rows.any()
    assert loss == pytest.approx(slow_loss(LOGITS, 10.0 * torch.eye(3, dtype=torch.float64)[GIVEN], 0, 0, False))


def test_the_first_stage_is_cross_entropy() -> None:
    method, plain = Pencil(identity_task()), CrossEntropy(identity_task())
    losses = [float(each.step(example(), no_clean()).scalars["loss"]) for each in (method, plain)]
    assert losses == [pytest.approx(2.2414569600176315)] * 2
    assert torch.equal(method.network.weight, plain.network.weight)
    assert not method.table.displacement.rows.any()


def test_the_third_stage_leaves_the_labels() -> None:
    method = Pencil(identity_task(), start=0.0)
    method.table.displacement.rows.copy_(LABEL_LOGITS)
    before = method.state_dict()["table.displacement.rows"].clone()
    go_to(method, FIXED)
    result = method.step(example(), no_clean())
    assert torch.equal(method.table.displacement.rows, before)
    assert torch.allclose(method.soft_labels(torch.tensor([1])), LABEL_LOGITS[1:].softmax(1).float())
    assert float(result.scalars["loss"]) == pytest.approx(2.1021844444723907 / 3)
    assert "labels/step" not in result.scalars


def test_the_learning_rate_is_constant_and_then_falls_at_thirds_but_never_to_zero() -> None:
    task, _ = problem(clean=None, epochs=32, schedule=cosine)
    method = Pencil(task)
    factors = []
    for epoch in range(32):
        go_to(method, epoch, 0.5)
        factors.append(method.learning_rate() / 0.05)
    assert factors[:20] == pytest.approx([1.0] * 20)
    assert factors[20:] == pytest.approx([10 / 3] * 4 + [1 / 3] * 4 + [1 / 30] * 4)


def test_the_papers_label_learning_rate_is_translated() -> None:
    task, _ = problem(clean=None)
    assert Pencil.from_paper(task, 600).label_rate == pytest.approx(600 / (32 * 4))
    assert Pencil.from_paper(task, 3000, alpha=0.08).alpha == 0.08
    task.batch_size, task.classes = 128, 10
    assert Pencil.from_paper(task).label_rate == pytest.approx(Pencil(task).label_rate) == pytest.approx(0.46875)


@pytest.mark.parametrize("stop", [3, 20, 40])
def test_an_interrupted_run_ends_the_same(stop: int) -> None:
    check_resume(build, stop)


@pytest.mark.parametrize("epoch", [0, 3, 7])
@pytest.mark.parametrize("official", [False, True])
def test_a_step_never_waits_for_a_device(epoch: int, official: bool) -> None:
    check_step(*build(official_lo=official), epoch=epoch)


def test_it_learns_better_labels() -> None:
    task, data = problem(clean=None, epochs=24)
    method = Pencil(task, alpha=0.05, label_rate=5.0)
    train_all(method, data)
    true, index = torch.arange(240) % 4, torch.arange(240)
    assert float((method.soft_labels(index).argmax(1) == true).float().mean()) > 0.8
    assert accuracy(method) > 0.85


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"alpha": -1}, "alpha is -1; it must be 0 or more"),
        ({"final_rate_factor": 0}, "final_rate_factor is 0; it must be above 0"),
        ({"fixed_labels": 2}, r"so no label is ever learned; raise fixed_labels \(2\)"),
        ({"fixed_labels": 30}, "a run of 9 epochs never reaches PENCIL's third stage, which starts after 30"),
    ],
)
def test_a_mistake_is_told_with_a_way_out(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Pencil(identity_task(), **settings)

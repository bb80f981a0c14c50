"""Symmetric cross entropy."""

from __future__ import annotations

import pytest
import torch

from mslg.methods.symmetric_ce import SymmetricCE
from tests.support.method_problems import (
    GIVEN,
    LOGITS,
    accuracy,
    check_step,
    example,
    identity_task,
    no_clean,
    problem,
    run,
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 6.320705015691334),
        ({"log_zero": -4.0}, 2.871847767138786),
        ({"log_zero": -6.0}, 4.195698802707298),
        ({"beta": 0.0}, 0.22414569600176315),
    ],
)
def test_the_loss_of_a_step(settings: dict[str, float], expected: float) -> None:
    result = SymmetricCE(identity_task(), **settings).step(example(), no_clean())
    assert float(result.scalars["loss"]) == pytest.approx(expected)
    assert float(result.scalars["cross_entropy"]) == pytest.approx(2.2414569600176315)


def test_the_update_of_a_step() -> None:
    method = SymmetricCE(identity_task())
    method.step(example(), no_clean())
    expected = torch.eye(3, dtype=torch.float64)
    for logits, label in zip(LOGITS, GIVEN.tolist(), strict=True):
        p = logits.softmax(0)
        for c in range(3):
            plain = float(p[c]) - (c == label)
            reverse = 9.210340371976182 * float(p[label]) * (float(p[c]) - (c == label))
            expected[c] -= (0.1 * plain + reverse) / 2 * logits
    assert torch.allclose(method.network.weight, expected)  # type: ignore[arg-type]


def test_only_the_product_of_beta_and_log_zero_matters() -> None:
    weights = []
    for beta, log_zero in ((1.0, -8.0), (4.0, -2.0)):
        method = SymmetricCE(identity_task(), beta=beta, log_zero=log_zero)
        method.step(example(), no_clean())
        weights.append(method.network.weight)
    assert torch.allclose(*weights)  # type: ignore[arg-type]


def test_it_learns_and_its_steps_stay_on_the_device() -> None:
    task, data = problem(clean=None)
    method = SymmetricCE(task)
    run(method, data)
    assert accuracy(method) > 0.8
    check_step(method, data)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": -0.1}, "alpha is -0.1 and beta 1.0; both must be 0 or more"),
        ({"alpha": 0.0, "beta": 0.0}, "at least one above 0"),
        ({"log_zero": 4.0}, "log_zero is 4.0; it stands for log 0 and must be a negative number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SymmetricCE(identity_task(), **settings)

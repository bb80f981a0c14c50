"""Bootstrapping, soft and hard."""

from __future__ import annotations

import pytest

from mslg.methods.bootstrap import Bootstrap
from mslg.methods.cross_entropy import CrossEntropy
from mslg.registry import UnknownName
from tests.support.blobs import same_state
from tests.support.method_problems import accuracy, check_step, example, identity_task, no_clean, problem, run


@pytest.mark.parametrize(("kind", "expected"), [("soft", 2.157410393327592), ("hard", 1.8414569600176316)])
def test_the_loss_of_a_step(kind: str, expected: float) -> None:
    result = Bootstrap(identity_task(), kind=kind).step(example(), no_clean())  # type: ignore[arg-type]
    assert float(result.scalars["loss"]) == pytest.approx(expected)
    assert float(result.scalars["agree"]) == 0.5


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_with_all_weight_on_the_label_it_is_cross_entropy(kind: str) -> None:
    states = []
    for method_class, settings in ((CrossEntropy, {}), (Bootstrap, {"kind": kind, "weight": 1.0})):
        task, data = problem(epochs=2)
        method = method_class(task, **settings)  # type: ignore[arg-type]
        run(method, data)
        states.append(method.network.state_dict())
    assert same_state(*states)


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_it_learns_and_its_steps_stay_on_the_device(kind: str) -> None:
    task, data = problem(clean=None)
    method = Bootstrap(task, kind=kind)  # type: ignore[arg-type]
    run(method, data)
    assert accuracy(method) > 0.8
    check_step(method, data)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"unknown kind 'sofd'\. Did you mean 'soft'\? Allowed: soft, hard"):
        Bootstrap(identity_task(), kind="sofd")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"weight is 0\.0; it must be above 0 and at most 1"):
        Bootstrap(identity_task(), weight=0.0)

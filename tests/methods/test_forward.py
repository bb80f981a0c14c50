"""Forward and backward correction."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from mslg.methods.cross_entropy import CrossEntropy
from mslg.methods.forward import ForwardCorrection
from mslg.noise.transition_matrix import anchors
from mslg.registry import UnknownName
from mslg.training.schedules import SCHEDULES
from tests.support.blobs import same_state
from tests.support.method_problems import (
    Problem,
    accuracy,
    check_resume,
    check_step,
    example,
    identity_task,
    no_clean,
    problem,
    run,
)

UNIFORM = torch.full((3, 3), 0.1).fill_diagonal_(0.8)
ASYMMETRIC = torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.7, 0.3], [0.2, 0.0, 0.8]])
BLOBS = torch.full((4, 4), 0.1).fill_diagonal_(0.7)


def build(**settings: Any) -> Problem:
    task, data = problem(clean=None, transition=BLOBS)
    return ForwardCorrection(task, **settings), data


@pytest.mark.parametrize(
    ("transition", "correction", "expected"),
    [
        (UNIFORM, "forward", 1.383361846188599),
        (ASYMMETRIC, "forward", 2.292076821999676),
        (ASYMMETRIC, "backward", 3.2189079404097884),
        (torch.eye(3), "forward", 2.2414569600176315),
        (torch.eye(3), "backward", 2.2414569600176315),
    ],
)
def test_the_loss_of_a_step(transition: torch.Tensor, correction: Any, expected: float) -> None:
    method = ForwardCorrection(identity_task(transition=transition), correction=correction)
    result = method.step(example(), no_clean())
    assert float(result.scalars["loss"]) == pytest.approx(expected, abs=1e-6)
    for wrong in (1.13974, 1.15718):  # logits mixed instead of probabilities
        assert float(result.scalars["loss"]) != pytest.approx(wrong, abs=0.1)


def test_without_noise_it_is_cross_entropy() -> None:
    states = []
    for method_class in (CrossEntropy, ForwardCorrection):
        task, data = problem(epochs=2, transition=torch.eye(4))
        method = method_class(task)
        run(method, data)
        states.append(method.network.state_dict())
    for name, tensor in states[0].items():
        assert torch.allclose(tensor, states[1][name], atol=1e-5), name


def test_predictions_are_those_before_the_noise() -> None:
    method = ForwardCorrection(identity_task(transition=UNIFORM))
    assert torch.allclose(method.predict(example().inputs), example().inputs.log_softmax(1))


def test_the_matrix_can_be_counted_on_pairs() -> None:
    verified = torch.arange(3).repeat_interleave(2000)
    given = torch.multinomial(ASYMMETRIC[verified], 1, generator=torch.Generator().manual_seed(0)).squeeze(1)
    method = ForwardCorrection(identity_task(pairs=(given, verified)), matrix="pairs")
    assert torch.allclose(method.transition, ASYMMETRIC, atol=0.03)
    assert method.first_corrected_epoch == 0


def test_anchors_are_looked_for_once_and_training_starts_again() -> None:
    method, data = build(matrix="anchors", warm_up=2)
    assert isinstance(method, ForwardCorrection)
    assert torch.equal(method.transition, torch.eye(4))
    run(method, data, epochs=2)
    warmed, old_optimizer = method.network, method.optimizer
    method.eval()
    with torch.no_grad():
        probs = torch.cat([method.predict(batch.inputs).exp() for batch in data.in_order()])
    expected = anchors(probs, 97)
    method.begin_epoch(2, data)
    assert torch.allclose(method.transition, expected, atol=1e-6)
    task, _ = problem(clean=None)
    task.new_network()
    assert same_state(method.network.state_dict(), task.new_network().state_dict()), "the task's second network"
    assert method.network is not warmed
    assert method.network.training
    assert method.optimizer is not old_optimizer
    assert not method.optimizer.state
    before = method.transition.clone()
    method.begin_epoch(3, data)
    assert torch.equal(method.transition, before)


def test_the_anchors_of_separate_classes_tell_the_noise() -> None:
    task, data = problem(clean=None, epochs=30)
    method = ForwardCorrection(task, matrix="anchors")
    run(method, data, epochs=11)
    assert (method.transition - BLOBS).abs().max() < 0.25
    assert (method.transition.diagonal() > 0.5).all()


def test_each_training_goes_through_the_whole_schedule() -> None:
    task, _ = problem(epochs=12, schedule=SCHEDULES["steps"])
    method = ForwardCorrection(task, matrix="anchors", warm_up=0.5)
    rates = []
    for epoch in range(12):
        method.set_progress(epoch, epoch / 12)
        rates.append(method.learning_rate())
    assert rates == pytest.approx(2 * [0.05, 0.05, 0.005, 0.005, 0.0005, 0.0005])


@pytest.mark.parametrize(
    "settings", [{}, {"correction": "backward"}, {"matrix": "anchors"}], ids=["forward", "backward", "anchors"]
)
def test_it_learns_and_its_steps_stay_on_the_device(settings: dict[str, Any]) -> None:
    task, data = problem(clean=None, epochs=10, transition=BLOBS)
    method = ForwardCorrection(task, **settings)
    run(method, data)
    assert accuracy(method) > 0.8
    for epoch in (0, 9):
        check_step(method, data, epoch)


@pytest.mark.parametrize("stop", [10, 17, 30])
@pytest.mark.parametrize("correction", ["forward", "backward"])
def test_a_run_with_a_restart_resumes_exactly(correction: str, stop: int) -> None:
    check_resume(lambda: build(matrix="anchors", correction=correction), stop)


def test_a_percentile_that_passes_over_whole_classes_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mslg"):
        build(matrix="anchors", percentile=70)
    assert "with 4 classes a percentile of 70 skips all samples of a class; use 100" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, 'needs the noise\'s transition matrix and the task has none; pass transition= .*"anchors" .* "pairs"'),
        ({"matrix": "pairs"}, "needs samples with given and verified labels and the task has none"),
        ({"matrix": "anchors", "percentile": 0}, "percentile is 0; it must be above 0 and at most 100"),
        ({"matrix": "anchors", "warm_up": 0}, "warm_up is 0; it must be above 0"),
        ({"matrix": "anchors", "warm_up": 6}, "a run of 6 epochs never reaches the corrected training"),
    ],
)
def test_what_is_missing_or_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    task, _ = problem()
    with pytest.raises(ValueError, match=message):
        ForwardCorrection(task, **settings)


def test_unknown_names_and_a_matrix_without_inverse_are_refused() -> None:
    task, _ = problem(transition=torch.full((4, 4), 0.25))
    with pytest.raises(UnknownName, match=r"unknown matrix 'anchor'\. Did you mean 'anchors'"):
        ForwardCorrection(task, matrix="anchor")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match=r"unknown correction 'backwards'\. Did you mean 'backward'"):
        ForwardCorrection(task, correction="backwards")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'condition number is .*; choose correction="forward"'):
        ForwardCorrection(task, correction="backward")

"""Gold correction."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from mslg.data.batch import Batch
from mslg.methods.gold_correction import GoldCorrection
from mslg.methods.noisy_plus_clean import NoisyPlusClean
from mslg.noise.transition_matrix import count, smooth
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
    problem,
    run,
)

BLOBS = torch.full((4, 4), 0.1).fill_diagonal_(0.7)


def pairs(samples: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    verified = torch.arange(samples) % 4
    return torch.multinomial(BLOBS[verified], 1, generator=torch.Generator().manual_seed(0)).squeeze(1), verified


def build(**settings: Any) -> Problem:
    task, data = problem()
    return GoldCorrection(task, **{"warm_up": 2, **settings}), data


def test_the_loss_and_the_update_of_a_step() -> None:
    both = (torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 1, 1, 2, 2, 0]))
    method = GoldCorrection(identity_task(pairs=both), clean_weight=0.5, smoothing=2.0)
    transition = smooth(count(*both, 3), 2.0)
    assert torch.allclose(method.transition.double(), transition, atol=1e-7)
    verified = Batch(torch.tensor([7]), torch.tensor([[0.5, -0.5, 1.0]], dtype=torch.float64), torch.tensor([2]))
    result = method.step(example(), iter([verified]))
    expected = torch.eye(3, dtype=torch.float64)
    noisy_loss = 0.0
    for logits, label in zip(LOGITS, GIVEN.tolist(), strict=True):
        p = logits.softmax(0)
        seen = sum(float(p[i]) * float(transition[i, label]) for i in range(3))
        noisy_loss -= math.log(seen) / 2
        for i in range(3):
            posterior = float(p[i]) * float(transition[i, label]) / seen
            expected[i] -= (float(p[i]) - posterior) / 2 * logits
    p = verified.inputs[0].softmax(0)
    clean_loss = -math.log(float(p[2]))
    for i in range(3):
        expected[i] -= 0.5 * (float(p[i]) - (i == 2)) * verified.inputs[0]
    assert float(result.scalars["loss"]) == pytest.approx(noisy_loss + 0.5 * clean_loss, abs=1e-6)
    assert float(result.scalars["clean/loss"]) == pytest.approx(clean_loss)
    assert torch.allclose(method.network.weight, expected, atol=1e-6)  # type: ignore[arg-type]


def test_a_matrix_without_noise_makes_it_noisy_plus_clean() -> None:
    verified = torch.arange(4).repeat(10**6)
    states = []
    for method_class, settings in ((NoisyPlusClean, {}), (GoldCorrection, {"smoothing": 0.0})):
        task, data = problem(epochs=2, pairs=(verified, verified))
        method = method_class(task, **settings)  # type: ignore[arg-type]
        run(method, data)
        states.append(method.network.state_dict())
    for name, tensor in states[0].items():
        assert torch.allclose(tensor, states[1][name], atol=1e-4), name


def test_pairs_are_counted_at_once_and_the_whole_run_is_corrected() -> None:
    task, data = problem(pairs=pairs())
    method = GoldCorrection(task)
    assert method.first_corrected_epoch == 0
    assert torch.allclose(method.transition.double(), smooth(count(*pairs(), 4), None), atol=1e-6)
    assert (method.transition - BLOBS).abs().max() < 0.1
    run(method, data)
    assert accuracy(method) > 0.85
    check_step(method, data)


def test_without_pairs_the_warmed_up_network_tells_what_labels_to_expect() -> None:
    method, data = build()
    assert isinstance(method, GoldCorrection)
    assert data.clean is not None
    run(method, data, epochs=2)
    sums = [[0.0] * 4 for _ in range(4)]
    numbers = [0] * 4
    method.eval()
    for place in range(len(data.clean)):
        (batch,) = data.clean.batches([torch.tensor([place])])
        probs = method.predict(batch.inputs).exp()[0].tolist()
        own = int(batch.label)
        numbers[own] += 1
        sums[own] = [a + b for a, b in zip(sums[own], probs, strict=True)]
    warmed = method.network
    method.begin_epoch(2, data)
    for row, total, number in zip(method.transition.tolist(), sums, numbers, strict=True):
        assert row == pytest.approx([value / number for value in total], abs=1e-5)
    assert method.network is not warmed
    assert method.network.training
    assert not method.optimizer.state
    task, _ = problem()
    task.new_network()
    assert same_state(method.network.state_dict(), task.new_network().state_dict()), "the task's second network"


def test_the_estimate_is_close_to_the_noise() -> None:
    task, data = problem(epochs=30, clean=100)
    method = GoldCorrection(task)
    run(method, data)
    assert (method.transition - BLOBS).abs().max() < 0.25
    assert accuracy(method) > 0.85


def test_a_class_without_clean_samples_gets_the_row_of_all_together() -> None:
    task, data = problem(clean=100)
    method = GoldCorrection(task, warm_up=2)
    run(method, data, epochs=2)
    assert data.clean is not None
    rest = (data.clean.label != 3).nonzero().flatten()
    method.begin_epoch(2, replace(data, clean=data.clean.at(rest)))
    assert torch.allclose(method.transition.sum(1), torch.ones(4))
    assert method.transition[3].argmax() == 3


@pytest.mark.parametrize("stop", [10, 17, 30])
def test_a_run_with_a_restart_resumes_exactly(stop: int) -> None:
    check_resume(build, stop)


def test_steps_stay_on_the_device_and_cost_what_is_said() -> None:
    method, data = build()
    for epoch in (0, 5):
        check_step(method, data, epoch)
    assert [method.relative_cost(epoch) for epoch in (0, 1, 2)] == [1.0, 1.0, 2.0]


def test_what_is_missing_or_makes_no_sense_is_refused() -> None:
    task, data = problem(clean=None)
    with pytest.raises(ValueError, match=r"clean_weight is -1\.0; it must be 0 or more"):
        GoldCorrection(task, clean_weight=-1.0)
    with pytest.raises(ValueError, match=r"smoothing is -1\.0; it must be 0 or more"):
        GoldCorrection(task, smoothing=-1.0)
    with pytest.raises(ValueError, match="gold correction needs clean samples and there are none; pass clean="):
        run(GoldCorrection(task, warm_up=2), data)

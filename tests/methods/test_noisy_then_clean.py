"""The control that fine-tunes on clean samples."""

from __future__ import annotations

import pytest
import torch

from mslg.methods.clean_only import CleanOnly
from mslg.methods.cross_entropy import CrossEntropy
from mslg.methods.noisy_then_clean import NoisyThenClean
from mslg.training.schedules import SCHEDULES
from tests.support.blobs import same_state
from tests.support.method_problems import Problem, accuracy, check_resume, check_step, no_clean, problem, run


def build() -> Problem:
    task, data = problem()
    return NoisyThenClean(task), data


def test_before_the_switch_it_is_cross_entropy_and_asks_for_no_clean_sample() -> None:
    networks = []
    for method_class in (NoisyThenClean, CrossEntropy):
        task, data = problem()
        method = method_class(task)
        for epoch in range(4):
            for batch in data.batches(epoch):
                method.set_progress(epoch, epoch / 6)
                torch.manual_seed(1)
                method.step(batch, no_clean())
        networks.append(method.network.state_dict())
    assert same_state(*networks)


def test_after_the_switch_it_learns_from_clean_samples_alone() -> None:
    networks = []
    for method_class in (NoisyThenClean, CleanOnly):
        task, data = problem()
        method = method_class(task)
        method.set_progress(4, 4 / 6)
        for group in method.optimizer.param_groups:
            group["lr"] = 0.01
        torch.manual_seed(1)
        method.step(next(iter(data.batches(4))), data.clean_batches(4))
        networks.append(method.network.state_dict())
    assert same_state(*networks)


def test_each_part_has_the_whole_schedule_and_the_second_a_lower_rate() -> None:
    task, _ = problem(epochs=12, schedule=SCHEDULES["cosine"])
    method = NoisyThenClean(task, switch=2 / 3, fine_tune_rate=0.2)
    rates = []
    for epoch in range(12):
        method.set_progress(epoch, epoch / 12)
        rates.append(method.learning_rate())
    cosine = SCHEDULES["cosine"]
    expected = [0.05 * cosine(epoch / 8) for epoch in range(8)] + [0.01 * cosine(epoch / 4) for epoch in range(4)]
    assert rates == pytest.approx(expected)


def test_it_learns_resumes_and_stays_on_the_device() -> None:
    method, data = build()
    run(method, data)
    assert accuracy(method) > 0.8
    for epoch in (0, 5):
        check_step(method, data, epoch)
    check_resume(build, 38)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"switch": 0}, "switch is 0; it must be above 0, or use the method clean-only"),
        ({"fine_tune_rate": 0.0}, "fine_tune_rate is 0.0; it must be above 0"),
        ({"switch": 6}, "a run of 6 epochs never reaches the fine-tuning on clean samples"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], message: str) -> None:
    task, _ = problem()
    with pytest.raises(ValueError, match=message):
        NoisyThenClean(task, **settings)

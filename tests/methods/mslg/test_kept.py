"""A clean gradient that serves several steps of MSLG: where it is kept, and when it is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from mslg.data.batch import Batch
from mslg.data.splits import Splits
from mslg.methods.mslg.method import MSLG, mslg_step
from mslg.runs.checkpoint import load_state, save_state
from mslg.training.method import Task
from tests.support import toy
from tests.support.blobs import same_state
from tests.support.method_problems import problem, run


def build() -> tuple[MSLG, Splits]:
    task, data = problem()
    return MSLG(task, prior="given", loss="reverse-kl", clean_every=3), data


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_kept_clean_gradient_survives_the_way_through_a_file(layout: torch.memory_format, tmp_path: Path) -> None:
    def image_network() -> nn.Module:
        torch.manual_seed(1)
        layers = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 4)
        return nn.Sequential(*layers).double().to(memory_format=layout)  # type: ignore[call-overload, no-any-return]

    def batch(seed: int) -> Batch:
        random = torch.Generator().manual_seed(seed)
        inputs, label = (
            torch.randn(8, 3, 8, 8, generator=random, dtype=torch.float64),
            torch.randint(0, 4, (8,), generator=random),
        )
        return Batch(torch.arange(8), inputs, label)

    def build_method() -> MSLG:
        method = MSLG(Task(batch(0).label, 4, image_network, 3), prior="given", warm_up=0, clean_every=3)
        method.set_progress(1, 0.5)
        return method

    def steps(method: MSLG, numbers: range) -> None:
        for number in numbers:
            method.step(batch(number), iter([batch(100 + number)] if method.engine.kept is None else []))

    whole, interrupted, resumed = build_method(), build_method(), build_method()
    steps(whole, range(6))
    steps(interrupted, range(4))
    assert interrupted.engine.kept is not None
    save_state(tmp_path / "state", interrupted.state_dict())
    resumed.load_state_dict(load_state(tmp_path / "state"))
    assert resumed.engine.kept is not None
    for parameter, move in zip(resumed.engine.parameters, resumed.engine.kept.direction, strict=True):
        assert move is not None
        assert move.stride() == parameter.stride(), "another layout would round otherwise"
    steps(resumed, range(4, 6))
    assert same_state(resumed.state_dict(), whole.state_dict())


def test_a_new_engine_and_a_new_run_keep_no_clean_gradient() -> None:
    method, data = build()
    run(method, data)
    assert method.engine.kept is not None
    state = method.state_dict()
    again, _ = build()
    again.continue_from(state)
    assert again.engine.kept is None
    method._make_engine()
    assert method.engine.kept is None


def test_a_step_without_a_clean_batch_needs_a_kept_gradient() -> None:
    method = MSLG(toy.task(), warm_up=0, prior="given")
    with pytest.raises(ValueError, match="clean is None and the engine keeps no clean gradient"):
        mslg_step(method.engine, method.table, method.optimizer, toy.noisy_batch(), None)


def test_the_preset_is_the_default_with_cheaper_steps() -> None:
    task = toy.task()
    fast, default = MSLG(task, **MSLG.presets["fast"](task)), MSLG(task.again())
    last = task.epochs - 2
    assert fast.relative_cost(last) < 1.8 < default.relative_cost(last)
    assert (fast.label_rate, fast.look_ahead, fast.prior) == (default.label_rate, default.look_ahead, default.prior)

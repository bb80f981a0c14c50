"""MSLG's last steps on clean samples, and the weight of its entropy loss: both as the clean samples decide."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mslg.data.make_splits import make_splits
from mslg.data.source import make_source
from mslg.data.splits import Splits
from mslg.methods.mslg.contest import entropy_weight_from_error
from mslg.methods.mslg.method import MSLG
from mslg.training.method import Task
from tests.support.blobs import blobs
from tests.support.method_problems import check_resume, plain_network, problem, sgd
from tests.support.method_problems import run as train_all


def held_out(rate: float, *, epochs: int = 4, **settings: Any) -> tuple[MSLG, Splits]:
    """Blobs with enough clean samples that some are held out."""
    data = blobs(clean=240, rate=rate)
    noisy = make_source(data.x, data.given, true_labels=data.true)
    clean = make_source(data.clean_x, data.clean_y)
    splits = make_splits(noisy, clean, batch_size=32, clean_batch_size=32, seed=3)
    assert splits.select is not None
    task = Task(noisy.label, 4, plain_network, epochs, 32, optimizer=sgd, seed=3)
    return MSLG(task, **{"prior": "given", "label_rate": 0.0, **settings}), splits


def weights(method: MSLG) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in method.network.parameters()])


def test_last_steps_are_taken_where_given_labels_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mslg.methods.mslg.contest.FINISH_RATE", 1.0
    )  # a run of 32 steps needs more than a few gentle ones
    scores = {}
    for finish in (0.0, 1.0):
        method, data = held_out(0.75, finish=finish)
        train_all(method, data)
        method.eval()
        batch = next(data.in_order(data.report))
        scores[finish] = float((method.predict(batch.inputs).argmax(1) == batch.label).double().mean())
    assert scores[1.0] > 0.8 > scores[0.0]


@pytest.mark.parametrize("rate", [100.0, 1e30])
def test_last_steps_that_do_not_help_are_refused(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mslg.methods.mslg.contest.FINISH_RATE", rate
    )  # far too large: the copy is ruined, at 1e30 it is NaN
    with_them, data = held_out(0.2)
    train_all(with_them, data)
    without, data = held_out(0.2, finish=0.0)
    train_all(without, data)
    assert torch.equal(weights(with_them), weights(without))


def test_without_a_select_part_there_are_no_last_steps() -> None:
    task, data = problem()
    assert data.select is None
    method = MSLG(task, prior="given", label_rate=0.0)
    before = MSLG(problem()[0], prior="given", label_rate=0.0, finish=0.0)
    train_all(method, data)
    train_all(before, problem()[1])
    assert torch.equal(weights(method), weights(before))


@pytest.mark.parametrize("stop", [3, 17, 27])
def test_a_run_interrupted_near_its_end_ends_the_same(stop: int) -> None:
    check_resume(lambda: held_out(0.6, prior="choose", label_rate=0.2, warm_up=2), stop)


def test_sureness_falls_from_one_to_zero_at_an_error_of_a_quarter() -> None:
    logits = torch.eye(4).repeat(5, 1)
    label = torch.arange(4).repeat(5)
    assert entropy_weight_from_error(logits, label) == 1
    for wrong, expected in {1: 0.8, 5: 0.0, 20: 0.0}.items():
        mistaken = torch.cat([(label[:wrong] + 1) % 4, label[wrong:]])
        assert entropy_weight_from_error(logits, mistaken) == pytest.approx(expected)


def test_the_entropy_loss_counts_as_far_as_the_classes_are_sure() -> None:
    pairs = (torch.arange(4).repeat(6), torch.arange(4).repeat(6))
    task, data = problem(pairs=pairs, network=plain_network)
    method = MSLG(task, prior="matrix")
    assert method.entropy_used == 0
    train_all(method, data)
    assert 0 < method.entropy_used <= 1
    fixed = MSLG(problem(pairs=pairs)[0], prior="matrix", entropy_weight=0.3)
    train_all(fixed, data)
    assert fixed.entropy_used == 0.3


def test_decisions_are_recorded_and_states_of_other_priors_refused() -> None:
    method, data = held_out(0.3, prior="choose", label_rate=0.2, warm_up=2)
    state = dict(method.state_dict())
    records = train_all(method, data)
    assert "prior/matrix" not in records[1]
    assert records[-1]["prior/matrix"] == float(method.settled == "matrix")
    assert records[-1]["entropy/weight"] == pytest.approx(method.entropy_used)
    with pytest.raises(ValueError, match="build a new one"):
        method.load_state_dict(state)


@pytest.mark.parametrize("value", ["high", -1.0])
def test_an_impossible_entropy_weight_is_refused_at_once(value: Any) -> None:
    with pytest.raises(ValueError, match="entropy_weight is"):
        MSLG(problem()[0], entropy_weight=value)


def test_auto_clean_beside_a_clean_set_is_refused() -> None:
    task, data = problem()
    with pytest.raises(ValueError, match="leave one of the two out"):
        train_all(MSLG(task, auto_clean=True), data)

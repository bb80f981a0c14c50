"""One contract for every method that goes on from an earlier run: what is kept, what starts anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mslg.data.source import make_source
from mslg.data.splits import Splits
from mslg.methods import METHODS
from mslg.review.decisions import Decision
from mslg.review.reviewed_samples import with_reviewed
from mslg.runs.checkpoint import load_state, save_state
from mslg.training.loop import Position, train
from mslg.training.method import Method
from mslg.training.prediction_history import PredictionHistory
from tests.support.blobs import blobs, same_state
from tests.support.every_method import EPOCHS, problem

WARM = 3  # epochs
DATA = blobs(samples=144)
SOURCE = make_source(DATA.x, DATA.given)


def earlier(name: str) -> tuple[Method, Splits]:
    method, data, _ = problem(name)
    for _ in train(method, data, epochs=EPOCHS):
        pass
    return method, data


def going_on(name: str, state: Any) -> Method:
    task = replace(problem(name)[0].task, epochs=WARM, warm=True, _made=0)
    method: Method = METHODS.load(name)(task)
    method.continue_from(state)
    return method


def reviewed(data: Splits) -> Splits:
    decisions = {str(p): Decision(str(p), "relabel", str(int(DATA.true[p]))) for p in data.train.index.tolist()[:30]}
    return with_reviewed(data, decisions)


@pytest.fixture(params=METHODS, scope="module")
def ended(request: pytest.FixtureRequest) -> tuple[str, Method, Splits]:
    return request.param, *earlier(request.param)


def test_networks_and_tables_are_kept_and_optimizers_are_new(ended: tuple[str, Method, Splits]) -> None:
    name, before, data = ended
    method = going_on(name, before.state_dict())
    inputs = next(data.in_order()).inputs
    method.set_progress(0, 0.0)
    with torch.no_grad():
        assert torch.equal(method.eval().predict(inputs), before.eval().predict(inputs))
    soft, kept = (each.soft_labels(data.train.index) for each in (method, before))
    assert (soft is None) == (kept is None)
    if soft is not None and kept is not None:
        assert torch.equal(soft, kept)
    for optimizer in method._optimizers.values():
        assert not optimizer.state, "momentum of another run"


def test_it_learns_from_the_first_epoch_on_and_resumes_to_the_bit(
    ended: tuple[str, Method, Splits], tmp_path: Path
) -> None:
    name, before, data = ended
    data = reviewed(data)
    method = going_on(name, before.state_dict())
    saved: list[Path] = []

    def after_step(position: Position) -> None:
        if position.epoch == 1 and position.step == 2:
            saved.append(tmp_path / "state")
            save_state(saved[0], {"method": dict(method.state_dict()), "position": position.state_dict()})

    records = [record.metrics for record in train(method, data, epochs=WARM, after_step=after_step)]
    assert all(np.isfinite(list(metrics.values())).all() for metrics in records)
    assert "reviewed/loss" in records[0]
    # A resumed run never sees the earlier one: its own checkpoint must be enough.
    resumed = METHODS.load(name)(replace(method.task, _made=0))
    position = Position(PredictionHistory(resumed.task.given, 4))
    state = load_state(saved[0])
    resumed.load_state_dict(state["method"])
    position.load_state_dict(state["position"])
    rest = [record.metrics for record in train(resumed, data, epochs=WARM, position=position)]
    assert rest == records[1:]
    assert same_state(resumed.state_dict(), method.state_dict())


def test_reviewed_samples_are_learned(ended: tuple[str, Method, Splits]) -> None:
    name, before, data = ended
    data = reviewed(data)
    assert data.clean is not None
    part = data.clean.at(torch.arange(len(data.clean) - data.reviewed, len(data.clean)))
    method = going_on(name, before.state_dict())
    method.set_progress(0, 0.0)
    (batch,) = part.batches([torch.arange(len(part))])

    def loss() -> float:
        method.eval()  # without dropout: with it the loss of a step says little
        with torch.no_grad():
            return -float(method.predict(batch.inputs).gather(1, batch.label.unsqueeze(1)).mean())

    at_first = loss()
    method.train()
    losses = [float(told) for _ in range(30) if (told := method.train_on_reviewed(batch)) is not None]
    assert len(losses) == 30
    # What is deployed may be a mean of weights, which follows slowly: then the network in training must have learned.
    assert loss() < at_first or np.mean(losses[-5:]) < np.mean(losses[:5])


def test_a_warm_method_has_no_warm_up_left() -> None:
    for name in METHODS:
        task = replace(problem(name)[0].task, warm=True, _made=0)
        method = METHODS.load(name)(task)
        for stage in ("first_label_epoch", "first_student_epoch", "ramp_epochs", "first_corrected_epoch"):
            assert getattr(method, stage, 0) == 0, (name, stage)


def test_mslg_keeps_the_prior_that_was_chosen_and_says_what_it_cannot_take_over(tmp_path: Path) -> None:
    before, data = earlier("mslg")
    method = going_on("mslg", before.state_dict())
    assert method.settled == before.settled != "choose"
    for _ in train(method, data, epochs=WARM):
        pass
    assert method.settled == before.settled
    task = replace(problem("mslg")[0].task, epochs=WARM, warm=True, _made=0)
    told: Any = METHODS.load("mslg")(task, entropy_weight=0.7)
    told.continue_from(before.state_dict())
    assert told.entropy_used == 0.7
    unsettled = problem("mslg")[0].state_dict()
    with pytest.raises(ValueError, match="ended in its warm-up"):
        going_on("mslg", unsettled)
    in_a_file = problem("mslg", table_file=tmp_path / "table")[0]
    with pytest.raises(ValueError, match="a label table in a file cannot be used as a warm start"):
        in_a_file.continue_from(before.state_dict())

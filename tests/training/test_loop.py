"""The loop: the same result for the same seed, from wherever it is resumed."""

from __future__ import annotations

import itertools
from contextlib import suppress
from copy import deepcopy

import pytest
import torch

from mslg.data.make_splits import make_splits
from mslg.data.samples import Samples
from mslg.data.source import make_source
from mslg.data.splits import Splits
from mslg.methods.mslg.method import MSLG
from mslg.training.evaluation import Evaluation
from mslg.training.loop import NonFiniteLoss, Position, train
from mslg.training.method import Method, Task
from mslg.training.prediction_history import PredictionHistory
from tests.support.blobs import blobs, same_state, small_network

EPOCHS = 4


def problem(**settings: object) -> tuple[Method, Splits, Evaluation]:
    data = blobs()
    noisy = make_source(data.x, data.given, true_labels=data.true)
    splits = make_splits(noisy, make_source(data.clean_x, data.clean_y), batch_size=32, clean_batch_size=8, seed=3)
    task = Task(
        noisy.label, 4, small_network, EPOCHS, 32, optimizer=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), seed=3
    )
    test = make_source(data.test_x, data.test_y)
    evaluation = Evaluation(splits, Samples(test.store, torch.arange(len(test)), test.label), noisy.true_label)
    return MSLG(task, warm_up=1, **settings), splits, evaluation  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for _ in range(2):
        method, data, evaluation = problem()
        records = [record.metrics for record in train(method, data, epochs=EPOCHS, evaluation=evaluation)]
        runs.append((records, method.state_dict()))
    assert same_state(*runs)


def test_the_users_own_random_numbers_are_left_alone() -> None:
    method, data, evaluation = problem()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    list(train(method, data, epochs=EPOCHS, evaluation=evaluation))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("stop", [1, 5, 8, 13, 20])
def test_a_run_resumed_at_any_step_ends_the_same(stop: int) -> None:
    method, data, evaluation = problem()
    whole = [record.metrics for record in train(method, data, epochs=EPOCHS, evaluation=evaluation)]

    class Stop(Exception):
        pass

    counter = itertools.count(1)
    interrupted, data, evaluation = problem()
    saved: dict[str, object] = {}

    def after_step(position: Position) -> None:
        if next(counter) == stop:
            saved.update(deepcopy({"method": interrupted.state_dict(), "position": position.state_dict()}))
            raise Stop

    records = []
    with suppress(Stop):
        for record in train(interrupted, data, epochs=EPOCHS, evaluation=evaluation, after_step=after_step):
            records.append(record.metrics)
    assert saved, "the run was interrupted"
    resumed, data, evaluation = problem()
    position = Position(PredictionHistory(resumed.task.given, 4))
    resumed.load_state_dict(saved["method"])  # type: ignore[arg-type]
    position.load_state_dict(saved["position"])  # type: ignore[arg-type]
    records += [
        record.metrics for record in train(resumed, data, epochs=EPOCHS, position=position, evaluation=evaluation)
    ]
    assert records == whole
    assert same_state(resumed.state_dict(), method.state_dict())


def test_metrics_are_means_over_samples_not_over_batches() -> None:
    method, data, _ = problem()
    seen: list[tuple[float, int]] = []
    step = method.step

    def listen(batch, clean):  # type: ignore[no-untyped-def]
        result = step(batch, clean)
        seen.append((float(result.scalars["loss"]), len(batch.index)))
        return result

    method.step = listen  # type: ignore[method-assign]
    record = next(train(method, data, epochs=EPOCHS))
    assert len({size for _, size in seen}) == 2, "the last batch is shorter"
    expected = sum(loss * size for loss, size in seen) / sum(size for _, size in seen)
    assert record.metrics["train/loss"] == pytest.approx(expected, rel=1e-12)


def test_a_loss_that_is_not_finite_ends_the_run_with_advice() -> None:
    method, data, _ = problem()
    method.network[0].weight.data.fill_(float("nan"))  # type: ignore[union-attr, index]
    with pytest.raises(NonFiniteLoss, match="'loss' became nan in epoch 1, step 8 of 8; try a learning rate ten times"):
        list(train(method, data, epochs=EPOCHS))


def test_every_sample_is_visited_once_an_epoch_and_no_clean_one() -> None:
    _, data, _ = problem()
    visits = torch.cat([batch.index for batch in data.batches(0)])
    assert sorted(visits.tolist()) == list(range(240))
    other = torch.cat([batch.index for batch in data.batches(1)])
    assert not torch.equal(visits, other)


def test_the_trace_follows_the_predictions() -> None:
    method, data, _ = problem()
    position = Position(PredictionHistory(method.task.given, 4))
    list(train(method, data, epochs=EPOCHS, position=position))
    history = position.history
    assert history.visits.rows.tolist() == [EPOCHS] * 240
    assert torch.allclose(history.mean.rows.sum(1), torch.ones(240), atol=1e-5)
    assert history.epochs == list(range(EPOCHS))
    assert torch.equal(history.predicted_history[-1], history.last_predicted.rows)

"""Joint optimization: its loss, the refresh of the labels, and the restart."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mslg.data.batch import Batch
from mslg.methods.cross_entropy import CrossEntropy
from mslg.methods.joint_optimization import JointOptimization
from mslg.training.loop import train
from mslg.training.losses import batch_prior_loss, log_mean_prediction
from mslg.training.method import StepResult
from mslg.training.schedules import cosine
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
from tests.support.toy import go_to


def build(**settings: Any) -> Problem:
    task, data = problem(clean=None, epochs=8, schedule=cosine)
    return JointOptimization(task, **{"first_refresh": 3, "restart": 6, "averaged": 2, **settings}), data


def test_the_loss_has_the_hand_checked_value() -> None:
    scalars = JointOptimization(identity_task()).step(example(), no_clean()).scalars
    assert float(scalars["regularizer/prior"]) == pytest.approx(1.2475342178809616)
    assert float(scalars["regularizer/entropy"]) == pytest.approx(0.5605256262168422)
    assert float(scalars["loss"]) == pytest.approx(4.186918522448259)
    assert float(scalars["loss"]) != pytest.approx(4.38199, abs=0.01)  # with log-softmax of probabilities as entropy


def test_the_loss_equals_its_slow_version() -> None:
    method = JointOptimization(identity_task(), prior_weight=0.7, entropy_weight=0.3, prior="given")
    soft = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]]
    method.learned.rows.copy_(torch.tensor(soft))
    prior = [0.5, 0.5, 0.0]  # the shares of the two given labels
    batch = example((1, 0))
    predicted = []
    for row in batch.inputs.tolist():
        powers = [math.exp(value) for value in row]
        predicted.append([power / sum(powers) for power in powers])
    total = 0.0
    for p, sample in zip(predicted, batch.index.tolist(), strict=True):
        for c in range(3):
            total -= soft[sample][c] * math.log(p[c]) / 2
            total -= 0.3 * p[c] * math.log(p[c]) / 2
    for c in range(3):
        total -= 0.7 * prior[c] * math.log((predicted[0][c] + predicted[1][c]) / 2)
    assert float(method.step(batch, no_clean()).scalars["loss"]) == pytest.approx(total, rel=1e-6)


def test_without_its_two_terms_the_loss_is_cross_entropy() -> None:
    joint, plain = JointOptimization(identity_task(), prior_weight=0, entropy_weight=0), CrossEntropy(identity_task())
    losses = [float(method.step(example(), no_clean()).scalars["loss"]) for method in (joint, plain)]
    assert losses == [pytest.approx(2.2414569600176315)] * 2
    assert torch.allclose(joint.network.weight, plain.network.weight)


def test_a_mean_prediction_at_the_prior_costs_the_logarithm_of_the_classes() -> None:
    prior = torch.full((3,), 1 / 3)
    assert float(batch_prior_loss(log_mean_prediction(torch.zeros(5, 3).log_softmax(1)), prior)) == pytest.approx(
        math.log(3)
    )
    decided = torch.full((3, 3), -40.0).fill_diagonal_(0.0)  # each row sure of another class
    assert float(batch_prior_loss(log_mean_prediction(decided.log_softmax(1)), prior)) == pytest.approx(
        math.log(3), rel=1e-5
    )


class Watched(JointOptimization):
    """Notes every prediction of every epoch, sample by sample."""

    def step(self, batch: Batch, clean: Any) -> StepResult:
        result = super().step(batch, clean)
        notes = self.__dict__.setdefault("notes", {})
        for sample, row in zip(batch.index.tolist(), result.log_probs.exp(), strict=True):
            notes.setdefault(sample, []).append(row)
        return result


def test_labels_are_as_given_until_the_refresh_and_then_the_mean_of_the_last_epochs() -> None:
    task, data = problem(clean=None, epochs=8)
    method = Watched(task, first_refresh=3, restart=6, averaged=2)
    one_hot = F.one_hot(task.given, 4).float()
    after = [soft_of(method) for _ in train(method, data, epochs=8)]
    assert torch.equal(after[0], one_hot)
    assert torch.equal(after[1], one_hot)
    for epoch in (2, 3, 4, 5):  # after the third epoch, and so on up to the last of step 1
        for sample, rows in method.notes.items():
            expected = [float(rows[epoch - 1][c] + rows[epoch][c]) / 2 for c in range(4)]
            assert after[epoch][sample].tolist() == pytest.approx(expected, abs=1e-6)
    assert torch.equal(after[6], after[5])
    assert torch.equal(after[7], after[5])


def soft_of(method: JointOptimization) -> Tensor:
    return method.soft_labels(torch.arange(len(method.task.given)))


def filled(values: Tensor, **settings: Any) -> JointOptimization:
    method = JointOptimization(identity_task(), averaged=3, **settings)
    for slot, epoch in zip(method.slots(), values, strict=True):
        slot.rows.copy_(epoch)
    method.end_epoch(method.first_refreshed_epoch, None)  # type: ignore[arg-type]  # it looks at no data
    return method


def test_constant_predictions_become_the_labels() -> None:
    constant = torch.tensor([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]])
    index = torch.tensor([1, 0])
    assert torch.allclose(filled(constant.expand(3, 2, 3)).soft_labels(index), constant[index])


def test_the_order_of_the_ring_does_not_matter() -> None:
    drawn = torch.randn(3, 2, 3, generator=torch.Generator().manual_seed(0)).softmax(2)
    expected = soft_of(filled(drawn))
    for order in ([1, 2, 0], [2, 1, 0]):
        assert torch.allclose(soft_of(filled(drawn[order])), expected)


def test_hard_labels_are_the_classes_of_the_mean() -> None:
    method = filled(torch.tensor([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]]).expand(3, 2, 3), hard=True)
    assert soft_of(method).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_a_sample_never_seen_keeps_its_label_and_few_epochs_are_averaged_alone() -> None:
    values = torch.zeros(3, 2, 3)
    values[1, 0] = torch.tensor([0.2, 0.5, 0.3])
    for hard in (False, True):
        method = filled(values, hard=hard)
        assert soft_of(method)[0].tolist() == pytest.approx([0, 1, 0] if hard else [0.2, 0.5, 0.3])
        assert soft_of(method)[1].tolist() == [0, 1, 0]  # as given


def test_the_restart_really_restarts() -> None:
    method, data = build()
    run(method, data, 6)
    first, momentum = method.network, method.optimizer
    weights = [p.clone() for p in first.parameters()]
    names = list(method.state_dict())
    method.set_progress(6, 6 / 8)
    method.begin_epoch(6, data)
    assert method.network is not first
    assert list(method.state_dict()) == names
    assert not any(torch.equal(p, w) for p, w in zip(method.network.parameters(), weights, strict=True) if p.dim() > 1)
    assert method.optimizer is not momentum
    assert not method.optimizer.state
    assert [id(p) for p in method.optimizer.param_groups[0]["params"]] == [id(p) for p in method.network.parameters()]
    labels = soft_of(method)
    batch = next(iter(data.batches(6)))
    result = method.step(batch, no_clean())
    assert set(result.scalars) == {"loss", "labels/changed"}
    expected = -(labels[batch.index] * result.log_probs).sum(1).mean()
    assert float(result.scalars["loss"]) == pytest.approx(float(expected))
    method.end_epoch(6, data)
    assert torch.equal(soft_of(method), labels)
    method.eval()
    assert torch.equal(method.predict(batch.inputs), method.network(batch.inputs).log_softmax(1))


def test_the_learning_rate_is_constant_and_then_falls_at_thirds_whatever_the_schedule() -> None:
    task, _ = problem(clean=None, epochs=16, schedule=cosine)
    method = JointOptimization(task, restart=10, final_rate_factor=2.5)
    factors = []
    for epoch in range(16):
        for within in (0.0, 0.9):
            go_to(method, epoch, within)
            factors.append(method.learning_rate() / 0.05)
    assert factors[:20] == pytest.approx([1.0] * 20)
    assert factors[20:] == pytest.approx([2.5] * 4 + [0.25] * 4 + [0.025] * 4)


@pytest.mark.parametrize("stop", [3, 18, 25, 43])
def test_an_interrupted_run_ends_the_same(stop: int) -> None:
    check_resume(build, stop)


@pytest.mark.parametrize("epoch", [0, 7])
def test_a_step_never_waits_for_a_device(epoch: int) -> None:
    check_step(*build(), epoch=epoch)


def test_labels_and_network_get_better_than_the_given_labels() -> None:
    task, data = problem(clean=None, epochs=16)
    method = JointOptimization(task, averaged=3)
    metrics = run(method, data)
    true = torch.arange(240) % 4
    assert float((soft_of(method).argmax(1) == true).float().mean()) > float((task.given == true).float().mean()) + 0.1
    assert accuracy(method) > 0.85
    assert metrics[-1]["labels/changed"] > 0.1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"restart": 0.1}, r"step 2 starts after 1 epochs and the labels are first refreshed after 2; raise restart"),
        ({"restart": 9}, "a run of 9 epochs never reaches joint optimization's second step, which starts after 9"),
        ({"averaged": 0}, "averaged is 0; a label is the mean of at least 1 epoch's predictions"),
        ({"prior_weight": -1}, "prior_weight is -1; it must be 0 or more"),
        ({"final_rate_factor": 0}, "final_rate_factor is 0; it must be above 0"),
        ({"prior": "unifrom"}, "Did you mean 'uniform'"),
    ],
)
def test_a_mistake_is_told_with_a_way_out(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        JointOptimization(identity_task(), **settings)

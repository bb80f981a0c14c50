"""MLNT: made-up labels, the meta-gradient, the teacher, and which network is deployed when."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mslg.data.batch import Batch
from mslg.methods.mlnt import MLNT
from mslg.training.schedules import cosine
from tests.support import toy
from tests.support.method_problems import Problem, accuracy, check_resume, check_step, plain_network, problem
from tests.support.method_problems import run as train_all

STUDENT = 6  # the first epoch of the student in a run of twelve


def build(**settings: Any) -> Problem:
    task, data = problem(clean=None, epochs=4, schedule=cosine)
    return MLNT(task, **{"labelings": 2, **settings}), data


def student(network: Callable[[], nn.Module] = toy.network, rate: float = 0.1, **settings: Any) -> MLNT:
    """Just before the student's first step, in full weight."""
    method = MLNT(toy.task(network, rate=rate), **{"ramp": 0.0, "neighbours": 2, **settings})
    method.train()
    toy.go_to(method, STUDENT)
    return method


def consistency(
    method: MLNT, weights: list[Tensor], labels: Tensor, target: Tensor, *, create_graph: bool = False
) -> Tensor:
    """KL(teacher ‖ student after a step on these labels), with everything recorded that a gradient needs."""
    inputs = toy.noisy_batch().inputs
    inner = F.cross_entropy(toy.at_weights(method.student, weights, inputs), labels)
    gradient = torch.autograd.grad(inner, weights, create_graph=create_graph)
    ahead = [p - method.inner_rate * g for p, g in zip(weights, gradient, strict=True)]
    moved = toy.at_weights(method.student, ahead, inputs).log_softmax(1)
    total = torch.zeros((), dtype=torch.float64)
    for row, other in zip(target, moved, strict=True):
        for wanted, found in zip(row, other, strict=True):
            total = total + wanted.exp() * (wanted - found)
    return total / len(target)


def a_teacher() -> Tensor:
    """Some log-probabilities to agree with."""
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64).log_softmax(1)


LABELINGS = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 1], [1, 0, 0, 0]])


@pytest.mark.parametrize("network", [toy.network, toy.normalised_network])
def test_the_meta_gradient_is_that_of_double_backward_and_of_differences(network: Callable[[], nn.Module]) -> None:
    method, target = student(network, inner_rate=0.3), a_teacher()
    done = method.engine.forward(toy.noisy_batch().inputs)
    found, loss = method.meta_gradient(done, target, LABELINGS)
    weights = [p.detach().clone().requires_grad_() for p in method.student.parameters()]
    whole = sum(consistency(method, weights, labels, target, create_graph=True) for labels in LABELINGS) / 3
    assert float(loss) == pytest.approx(float(whole.detach()))
    assert toy.close(found, torch.autograd.grad(whole, weights), 1e-12)
    slow = toy.differences(
        lambda: sum(consistency(method, weights, labels, target).detach() for labels in LABELINGS) / 3, weights
    )
    assert toy.close(found, slow, 1e-8)


def test_the_second_derivative_is_really_in_it() -> None:
    method, target = student(inner_rate=0.3), a_teacher()
    done = method.engine.forward(toy.noisy_batch().inputs)
    found, _ = method.meta_gradient(done, target, LABELINGS[:1])
    ahead = method.engine.look_ahead(done, lambda logits: F.cross_entropy(logits, LABELINGS[0]), 0.3)
    first_order, _ = method.engine.clean_gradient(
        ahead,
        toy.noisy_batch().inputs,
        lambda logits: F.kl_div(logits.log_softmax(1), target.exp(), reduction="batchmean"),
    )
    assert not toy.close(found, [g for g in first_order if g is not None], 1e-4)


def test_with_dropout_the_inner_step_and_its_hessian_see_the_same_masks() -> None:
    method, target, inputs = student(toy.dropout_network, inner_rate=0.3), a_teacher(), toy.noisy_batch().inputs
    torch.manual_seed(8)
    found, _ = method.meta_gradient(method.engine.forward(inputs), target, LABELINGS)
    torch.manual_seed(8)
    weights = [p.detach().clone().requires_grad_() for p in method.student.parameters()]
    logits = toy.at_weights(method.student, weights, inputs)
    whole = torch.zeros((), dtype=torch.float64)
    for labels in LABELINGS:
        gradient = torch.autograd.grad(F.cross_entropy(logits, labels), weights, create_graph=True)
        moved = toy.at_weights(method.student, [p - 0.3 * g for p, g in zip(weights, gradient, strict=True)], inputs)
        whole = whole + F.kl_div(moved.log_softmax(1), target.exp(), reduction="batchmean") / 3
    assert toy.close(found, torch.autograd.grad(whole, weights), 1e-12)


def test_a_step_is_the_sum_of_both_gradients() -> None:
    method = student(meta_weight=0.7, labelings=3)
    before, batch = toy.weights_of(method.student), toy.noisy_batch()
    method.synthetic_labels = lambda _: LABELINGS  # type: ignore[method-assign]
    weights = [p.clone().requires_grad_() for p in before]
    target = method.teacher(batch.inputs).log_softmax(1)  # the student's own weights: the mean of equal ones
    meta = sum(consistency(method, weights, labels, target, create_graph=True) for labels in LABELINGS) / 3
    loss = F.cross_entropy(toy.at_weights(method.student, weights, batch.inputs), batch.label)
    gradient = torch.autograd.grad(loss + 0.7 * meta, weights)
    scalars = method.step(batch, iter(())).scalars
    assert toy.close(toy.weights_of(method.student), [p - 0.1 * g for p, g in zip(before, gradient, strict=True)])
    assert float(scalars["loss"]) == pytest.approx(float(loss.detach()))
    assert float(scalars["teacher/consistency"]) == pytest.approx(float(meta.detach()))


def test_without_perturbation_and_inner_step_a_teacher_equal_to_the_student_adds_nothing() -> None:
    method = student(replaced=0.0, inner_rate=0.0, meta_weight=50.0)
    before, batch = toy.weights_of(method.student), toy.noisy_batch()
    plain = torch.autograd.grad(
        F.cross_entropy(method.student(batch.inputs), batch.label), list(method.student.parameters())
    )
    result = method.step(batch, iter(()))
    assert float(result.scalars["teacher/consistency"]) == pytest.approx(0, abs=1e-15)
    assert toy.close(toy.weights_of(method.student), [p - 0.1 * g for p, g in zip(before, plain, strict=True)], 1e-12)


def test_the_teacher_is_a_running_mean_in_closed_form() -> None:
    method = student(rate=0.0, memory=1.0, late_decay=0.9)  # a student that stands still
    method.late_decay = 0.9
    start = [p.add_(1.0).clone() for p in method.teacher.parameters()]
    for _ in range(7):
        method.step(toy.noisy_batch(), iter(()))
    expected = [0.9**7 * t + (1 - 0.9**7) * s for t, s in zip(start, method.student.parameters(), strict=True)]
    assert toy.close(toy.weights_of(method.teacher), [e.detach() for e in expected], 1e-12)
    assert all(p.grad is None and not p.requires_grad for p in method.teacher.parameters())


def test_the_teachers_statistics_come_from_its_own_passes() -> None:
    method, batch = student(toy.normalised_network), toy.noisy_batch()
    for _ in range(3):
        method.step(batch, iter(()))
    mean, own = method.teacher[1].running_mean, method.teacher[0](batch.inputs).mean(0)
    student_mean = method.student[1].running_mean
    assert int(method.teacher[1].num_batches_tracked) == int(method.student[1].num_batches_tracked) == 3
    assert torch.allclose(mean, (1 - 0.9**3) * own, atol=0.05)
    assert not torch.equal(mean, student_mean)


def far_and_near(size: int = 12) -> tuple[MLNT, Batch]:
    torch.manual_seed(1)
    batch = Batch(torch.arange(size), torch.randn(size, 3, dtype=torch.float64), torch.arange(size))
    return student(toy.normalised_network, neighbours=3, labelings=6), batch


def slow_neighbours(method: MLNT, batch: Batch) -> list[set[int]]:
    body = copy.deepcopy(method.features)[:-1].eval()
    features = body(batch.inputs).tolist()
    found = []
    for i, mine in enumerate(features):
        distances = [
            (sum((a - b) ** 2 for a, b in zip(mine, theirs, strict=True)), j)
            for j, theirs in enumerate(features)
            if j != i
        ]
        found.append({j for _, j in sorted(distances)[:3]})
    return found


def test_neighbours_are_the_nearest_others_in_the_frozen_features() -> None:
    method, batch = far_and_near()
    statistics = method.features[1].running_mean.clone()
    near = method.nearest(batch.inputs)
    assert [set(row) for row in near.tolist()] == slow_neighbours(method, batch)
    assert not any(i in row for i, row in enumerate(near.tolist()))
    assert torch.equal(method.features[1].running_mean, statistics)  # in evaluation mode, though the loop trains
    assert not method.features[-1]._forward_pre_hooks


def test_a_batch_smaller_than_the_neighbourhood_works() -> None:
    method, batch = far_and_near(size=3)
    assert method.nearest(batch.inputs).shape == (3, 2)
    assert MLNT(toy.task(), neighbours=10).nearest(toy.noisy_batch().inputs).shape == (4, 3)


@pytest.mark.parametrize("replaced", [0.0, 0.25, 0.5, 1.0])
def test_made_up_labels_come_from_neighbours_and_as_many_as_asked_for(replaced: float) -> None:
    """Every sample has a label of its own here, so each replacement shows, and where it came from."""
    method, batch = far_and_near()
    method.replaced = replaced
    made = method.synthetic_labels(batch)
    assert made.shape == (6, 12)
    near = slow_neighbours(method, batch)
    for row in made.tolist():
        changed = [(i, label) for i, label in enumerate(row) if label != i]
        assert len(changed) == round(12 * replaced)
        assert all(label in near[i] for i, label in changed)
    if 0 < replaced < 1:
        assert len({tuple(row) for row in made.tolist()}) > 1


def test_weight_and_decay_follow_the_position_in_the_students_training() -> None:
    task = toy.task(epochs=100)
    method = MLNT(task, warm_up=0.4, ramp=0.25, meta_weight=2.0, memory=1.0, early_decay=0.9, late_decay=0.95)
    for epoch, u in ((40, 0.0), (47, 7 / 15), (54, 14 / 15)):
        toy.go_to(method, epoch)
        weight, decay = method._weight_and_decay()
        assert weight == pytest.approx(2 * math.exp(-5 * (1 - u) ** 2))
        assert decay == 0.9
    for epoch in (55, 99):
        toy.go_to(method, epoch)
        assert method._weight_and_decay() == (2.0, 0.95)


def test_a_long_run_has_the_originals_decay_and_a_short_one_a_shorter_memory() -> None:
    task = toy.task(epochs=120)
    task.given, task.batch_size = torch.zeros(50000, dtype=torch.int64), 128
    assert (MLNT(task).early_decay, MLNT(task).late_decay) == (0.99, 0.999)
    task.epochs, task.batch_size = 4, 1000  # 100 steps of the student: a memory of 20
    assert (MLNT(task).early_decay, MLNT(task).late_decay) == (pytest.approx(0.95), pytest.approx(0.95))


def test_both_trainings_have_the_whole_schedule() -> None:
    method = MLNT(toy.task(epochs=10, schedule=cosine), warm_up=4)
    rates = []
    for epoch in range(10):
        toy.go_to(method, epoch)
        rates.append(method.learning_rate())
    assert rates[:4] == pytest.approx([0.1 * cosine(i / 4) for i in range(4)])
    assert rates[4:] == pytest.approx([0.1 * cosine(i / 6) for i in range(6)])


def test_the_feature_network_is_deployed_first_and_the_teacher_in_the_end() -> None:
    method, data = build()
    inputs = next(iter(data.batches(0))).inputs
    fresh = toy.weights_of(method.student)
    train_all(method, data, 2)
    assert method.deployed() is method.features
    assert toy.close(toy.weights_of(method.student), fresh, 0.0)
    pretrained = toy.weights_of(method.features)
    method, data = build()
    train_all(method, data)
    assert method.deployed() is method.teacher
    assert toy.close(toy.weights_of(method.features), pretrained, 0.0)  # frozen
    loaded, _ = build()
    loaded.load_state_dict(method.state_dict())
    for each in (method, loaded):
        each.eval()
    assert torch.equal(loaded.predict(inputs), method.teacher(inputs).log_softmax(1))


def test_a_network_handed_in_is_the_one_deployed() -> None:
    network = toy.network()
    task = toy.task(network)  # type: ignore[arg-type]
    assert MLNT(task).teacher is network


@pytest.mark.parametrize("stop", [3, 10, 16, 25])
def test_an_interrupted_run_ends_the_same(stop: int) -> None:
    check_resume(build, stop)


@pytest.mark.parametrize("epoch", [0, 2, 3])
def test_a_step_never_waits_for_a_device(epoch: int) -> None:
    check_step(*build(), epoch=epoch)


def test_it_learns() -> None:
    task, data = problem(clean=None, epochs=8, network=plain_network)
    method = MLNT(task, labelings=3)
    metrics = train_all(method, data)
    assert accuracy(method) > 0.85
    assert {"train/loss", "teacher/consistency", "teacher/differ"} <= set(metrics[-1])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"labelings": 0}, "labelings is 0; at least 1 is needed"),
        ({"replaced": 1.5}, "replaced is 1.5; it is a fraction, from 0 to 1"),
        ({"inner_rate": -0.1}, "inner_rate is -0.1; it must be 0 or more"),
        ({"warm_up": 12}, "a run of 12 epochs never reaches MLNT's student, which starts after 12"),
    ],
)
def test_a_mistake_is_told_with_a_way_out(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MLNT(toy.task(), **settings)

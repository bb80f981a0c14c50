"""EMLC: the teacher's gradient, through the student and from clean samples, against double backward; its limits."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mslg.data.batch import Batch
from mslg.methods.emlc import EMLC
from tests.support import toy
from tests.support.method_problems import Problem, accuracy, check_resume, check_step, problem
from tests.support.method_problems import run as train_all


def build(**settings: Any) -> Problem:
    task, data = problem()
    return EMLC(task, hidden=16, embedding=8, **settings), data


def small(**settings: Any) -> EMLC:
    method = EMLC(toy.task(), hidden=5, embedding=4, **settings)
    toy.go_to(method, 0)
    return method


def clean_batches() -> list[Batch]:
    whole = toy.clean_batch()
    return [Batch(whole.index[part], whole.inputs[part], whole.label[part]) for part in (slice(0, 2), slice(2, 5))]


def gate(method: EMLC, features: Tensor, label: int) -> Tensor:
    both = torch.cat([features, method.generator.embedding.weight[label]])
    return torch.sigmoid(method.generator.layers(both))[0]


def teacher_loss(method: EMLC) -> Tensor:
    """On clean samples, one by one: its own, and the gate's on each label and on the most probable wrong one."""
    clean, total = toy.clean_batch(), torch.zeros((), dtype=torch.float64)
    for inputs, label in zip(clean.inputs, clean.label.tolist(), strict=True):
        features = method.teacher[:-1](inputs)  # type: ignore[index]
        probs = method.teacher(inputs).softmax(0)
        wrong = max((c for c in range(3) if c != label), key=lambda c: float(probs[c].detach()))
        of_gate = -gate(method, features, label).log() - (1 - gate(method, features, wrong)).log()
        total = total - probs[label].log() + method.gate_weight * of_gate / 2
    return total / len(clean.label)


def soft_labels(method: EMLC, batch: Batch) -> Tensor:
    rows = []
    for inputs, label in zip(batch.inputs, batch.label.tolist(), strict=True):
        keep = gate(method, method.teacher[:-1](inputs), label)  # type: ignore[index]
        given = torch.eye(3, dtype=torch.float64)[label]
        rows.append(keep * given + (1 - keep) * method.teacher(inputs).softmax(0))
    return torch.stack(rows)


@pytest.mark.parametrize("gate_weight", [0.0, 1.0])
def test_a_step_equals_the_published_algorithm(gate_weight: float) -> None:
    method = small(gate_weight=gate_weight)
    with torch.no_grad():
        for parameter in method.teacher.parameters():  # unlike the student
            parameter.mul_(-1.3)
    reference, noisy = copy.deepcopy(method), toy.noisy_batch()
    extra, verified = clean_batches()
    parameters = list(reference.network.parameters())
    soft = soft_labels(reference, noisy)
    logits = toy.at_weights(reference.network, parameters, noisy.inputs)
    inner = -(soft * logits.log_softmax(1)).sum(1).mean()
    inner = inner + F.cross_entropy(toy.at_weights(reference.network, parameters, extra.inputs), extra.label)
    slopes = torch.autograd.grad(inner, parameters, create_graph=True)
    ahead = [p - 0.1 * g for p, g in zip(parameters, slopes, strict=True)]
    loss = F.cross_entropy(toy.at_weights(reference.network, ahead, verified.inputs), verified.label)
    leaves = [*reference.teacher.parameters(), *reference.generator.parameters()]
    expected = torch.autograd.grad(loss + teacher_loss(reference), leaves)
    found = toy.noted_gradients((*method.teacher.parameters(), *method.generator.parameters()))
    method.step(noisy, iter([extra, verified]))
    assert max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)) < 1e-14
    assert min(float(g.abs().max()) for g in found) > 1e-6
    assert toy.close(list(method.network.parameters()), ahead, 1e-13)
    assert torch.allclose(method.soft_labels(noisy.index), soft.detach().float())


def test_the_teacher_is_another_network_and_reviewed_samples_train_both() -> None:
    method, data = build()
    assert not toy.close(toy.weights_of(method.network), toy.weights_of(method.teacher))
    before = toy.weights_of(method.teacher)
    method.train_on_reviewed(next(data.clean_batches(0)))
    assert not toy.close(toy.weights_of(method.teacher), before)
    assert method.deployed() is method.network


@pytest.mark.parametrize("stop", [3, 20])
def test_an_interrupted_run_ends_the_same(stop: int) -> None:
    check_resume(build, stop)


def test_a_step_never_waits_for_a_device() -> None:
    check_step(*build(), epoch=2)


def test_it_learns() -> None:
    method, data = build()
    metrics = train_all(method, data)
    assert accuracy(method) > 0.85
    assert metrics[-1]["gate/loss"] < metrics[0]["gate/loss"]
    assert {"clean/loss", "teacher/loss", "labels/changed"} <= set(metrics[-1])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"hidden": 0}, "hidden is 0; the gate needs at least 1 unit"),
        ({"gate_weight": -1}, "gate_weight is -1; it must be 0 or more"),
        ({"mode": "exakt"}, "Did you mean 'exact'"),
    ],
)
def test_a_mistake_is_told_with_a_way_out(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        EMLC(toy.task(), **settings)

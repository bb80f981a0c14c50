"""MLC: a step against double backward through the look-ahead, and its limits."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mslg.data.batch import Batch
from mslg.methods.mlc import MLC
from tests.support import toy
from tests.support.method_problems import Problem, accuracy, check_resume, check_step, problem
from tests.support.method_problems import run as train_all


def build(**settings: Any) -> Problem:
    task, data = problem()
    return MLC(task, hidden=16, embedding=8, **settings), data


def small(**settings: Any) -> MLC:
    method = MLC(toy.task(), hidden=5, embedding=4, **settings)
    toy.go_to(method, 0)
    return method


def clean_batches() -> list[Batch]:
    whole = toy.clean_batch()
    return [Batch(whole.index[part], whole.inputs[part], whole.label[part]) for part in (slice(0, 2), slice(2, 5))]


def soft_labels(method: MLC, batch: Batch) -> Tensor:
    rows = []
    for features, label in zip(method.network[:-1](batch.inputs).detach(), batch.label, strict=True):  # type: ignore[index]
        hidden = torch.cat([features, method.generator.embedding.weight[label]])
        for layer in method.generator.layers:
            hidden = layer(hidden)
        rows.append(hidden.softmax(0))
    return torch.stack(rows)


@pytest.mark.parametrize("share", [0.0, 1 / 3])
def test_a_step_equals_the_published_algorithm(share: float) -> None:
    method = small(clean_share=share)
    reference, noisy = copy.deepcopy(method), toy.noisy_batch()
    extra, verified = clean_batches()
    parameters = list(reference.network.parameters())

    def training_loss(soft: Tensor) -> Tensor:
        noisy_loss = -(soft * toy.at_weights(reference.network, parameters, noisy.inputs).log_softmax(1)).sum(1).mean()
        clean = F.cross_entropy(toy.at_weights(reference.network, parameters, extra.inputs), extra.label)
        return (1 - share) * noisy_loss + share * clean

    soft = soft_labels(reference, noisy)
    slopes = torch.autograd.grad(training_loss(soft), parameters, create_graph=True)
    ahead = [p - 0.1 * g for p, g in zip(parameters, slopes, strict=True)]
    loss = F.cross_entropy(toy.at_weights(reference.network, ahead, verified.inputs), verified.label)
    expected = torch.autograd.grad(loss, list(reference.generator.parameters()))
    batches = [extra, verified] if share else [verified]
    found = toy.noted_gradients(method.generator.parameters())
    method.step(noisy, iter(batches))
    assert max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)) < 1e-14
    assert max(float(g.abs().max()) for g in found) > 1e-5
    assert toy.close(list(method.network.parameters()), ahead, 1e-13)  # the labels of before
    assert torch.allclose(method.soft_labels(noisy.index), soft.detach().float())


def test_a_wrong_label_is_corrected_and_a_right_one_is_kept() -> None:
    clean = toy.clean_batch()
    right, wrong = int(clean.label[0]), int(clean.label[0] + 1) % 3
    same = torch.stack([clean.inputs[0]] * 2)
    noisy = Batch(torch.arange(2), same, torch.tensor([right, wrong]))
    verified = itertools.repeat(Batch(clean.index[:1], clean.inputs[:1], clean.label[:1]))
    method = MLC(toy.task(rate=0.01), generator_rate=0.01)
    for _ in range(60):
        method.step(noisy, verified)
    assert method.soft_labels(noisy.index).argmax(1).tolist() == [right, right]


@pytest.mark.parametrize("stop", [3, 20])
def test_an_interrupted_run_ends_the_same(stop: int) -> None:
    check_resume(build, stop)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_step_never_waits_for_a_device(share: float) -> None:
    check_step(*build(clean_share=share), epoch=2)


def test_it_learns() -> None:
    method, data = build(generator_rate=3e-3)
    metrics = train_all(method, data)
    assert accuracy(method) > 0.85
    assert metrics[-1]["clean/loss"] < metrics[0]["clean/loss"]
    assert {"labels/changed", "labels/entropy"} <= set(metrics[-1])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"hidden": 0}, "hidden is 0; the label correction network needs at least 1 unit"),
        ({"generator_rate": -1}, "generator_rate is -1; it must be 0 or more"),
        ({"clean_share": 1.0}, "clean_share is 1.0; it must be at least 0 and below 1"),
    ],
)
def test_a_mistake_is_told_with_a_way_out(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MLC(toy.task(), **settings)

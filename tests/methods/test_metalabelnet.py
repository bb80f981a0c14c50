"""MetaLabelNet: its gradient by double backward, its stages, and its limits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mslg.methods.metalabelnet import MetaLabelNet
from tests.support import toy
from tests.support.method_problems import Problem, accuracy, check_resume, problem
from tests.support.method_problems import run as train_all


def build(epochs: int = 6, **settings: Any) -> Problem:
    task, data = problem(epochs=epochs)
    return MetaLabelNet(task, warm_up=2, **settings), data


def small(network: Callable[[], nn.Module] = toy.network, **settings: Any) -> MetaLabelNet:
    method = MetaLabelNet(toy.task(network), warm_up=0, **settings)
    toy.go_to(method, 0)
    return method


def soft_labels(method: MetaLabelNet, inputs: Tensor) -> Tensor:
    """From the features below the last layer of the frozen network, in evaluation mode."""
    body = copy.deepcopy(method.encoder)[:-1].eval()  # type: ignore[index]
    return F.softmax(F.linear(body(inputs), method.generator.layer.weight, method.generator.layer.bias), 1)


def reverse_kl(logits: Tensor, soft: Tensor) -> Tensor:
    """The mean over all entries, as in the released code."""
    probs = logits.softmax(1)
    return (probs * (probs.log() - soft.log())).mean()


@pytest.mark.parametrize("network", [toy.network, toy.normalised_network])
def test_a_step_equals_the_published_algorithm(network: Callable[[], nn.Module]) -> None:
    method = small(network, look_ahead=2.0)
    reference, noisy, clean = copy.deepcopy(method), toy.noisy_batch(), toy.clean_batch()
    parameters = list(reference.network.parameters())
    inner = reverse_kl(
        toy.at_weights(reference.network, parameters, noisy.inputs), soft_labels(reference, noisy.inputs)
    )
    slopes = torch.autograd.grad(inner, parameters, create_graph=True)
    ahead = [p - 2.0 * g for p, g in zip(parameters, slopes, strict=True)]
    loss = F.cross_entropy(toy.at_weights(reference.network, ahead, clean.inputs), clean.label)
    expected = torch.autograd.grad(loss, list(reference.generator.parameters()))
    found = toy.noted_gradients(method.generator.parameters())
    method.step(noisy, toy.endless(clean))
    assert max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)) < 1e-14
    assert max(float(g.abs().max()) for g in found) > 1e-5
    # The network then trains on the improved labels: KL plus entropy is −Σ p log ŷ.
    improved = soft_labels(method, noisy.inputs).detach()
    logits = reference.network(noisy.inputs)
    slopes = torch.autograd.grad(-(logits.softmax(1) * improved.log()).mean(), parameters)
    trained = [p - 0.1 * g for p, g in zip(parameters, slopes, strict=True)]
    assert toy.close(list(method.network.parameters()), trained, 1e-13)
    assert torch.allclose(method.soft_labels(noisy.index), improved.float())


def test_features_freeze_after_the_warm_up() -> None:
    method, data = build()
    seen: list[list[Tensor]] = []
    begin = method.begin_epoch
    method.begin_epoch = lambda epoch, data: (begin(epoch, data), seen.append(toy.weights_of(method.encoder)))  # type: ignore[method-assign,func-returns-value,assignment]
    train_all(method, data)
    assert not toy.close(seen[1], seen[2])  # the network of the warm-up
    assert toy.close(seen[2], seen[-1], 0.0)
    assert not toy.close(toy.weights_of(method.network), seen[-1])
    assert not torch.allclose(method.soft_labels(torch.arange(5)), F.one_hot(method.task.given[:5], 4).float())


@pytest.mark.parametrize("stop", [3, 20])
def test_an_interrupted_run_ends_the_same(stop: int) -> None:
    check_resume(build, stop)


def test_it_learns() -> None:
    method, data = build(epochs=20, look_ahead=4.0)
    metrics = train_all(method, data)
    assert accuracy(method) > 0.8
    assert {"clean/loss", "labels/changed", "labels/entropy"} <= set(metrics[-1])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"look_ahead": 0.0}, "look_ahead is 0.0; .* must be above 0"),
        ({"generator_rate": -1}, "generator_rate is -1; it must be 0 or more"),
        ({"mode": "exakt"}, "Did you mean 'exact'"),
    ],
)
def test_a_mistake_is_told_with_a_way_out(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MetaLabelNet(toy.task(), **settings)

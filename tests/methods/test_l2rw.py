"""Learning to reweight: its weights three ways, and the step they lead to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mslg.data.batch import Batch
from mslg.methods.l2rw import LearningToReweight, positive_shares
from tests.support import toy
from tests.support.method_problems import Problem, accuracy, check_resume, check_step, problem
from tests.support.method_problems import run as train_all


def build() -> Problem:
    task, data = problem()
    return LearningToReweight(task), data


def clean_loss(network: nn.Module, shares: Tensor, *, create_graph: bool = False) -> Tensor:
    """The clean loss after a unit step on the noisy losses, each times its share."""
    noisy, clean = toy.noisy_batch(), toy.clean_batch()
    parameters = list(network.parameters())
    losses = F.cross_entropy(toy.at_weights(network, parameters, noisy.inputs), noisy.label, reduction="none")
    gradient = torch.autograd.grad((shares * losses).sum(), parameters, create_graph=create_graph)
    ahead = [p - g for p, g in zip(parameters, gradient, strict=True)]
    return F.cross_entropy(toy.at_weights(network, ahead, clean.inputs), clean.label)


def slow_weights(slopes: list[float]) -> list[float]:
    kept = [max(-slope, 0.0) for slope in slopes]
    return [value / sum(kept) if sum(kept) else 0.0 for value in kept]


@pytest.mark.parametrize("network", [toy.network, toy.normalised_network])
def test_the_weights_are_those_of_double_backward_and_of_differences(network: Callable[[], nn.Module]) -> None:
    """The step's own weights are read off what it does to the network."""
    method = LearningToReweight(toy.task(network))
    zero = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    (twice,) = torch.autograd.grad(clean_loss(method.network, zero, create_graph=True), zero)
    shares = torch.zeros(4, dtype=torch.float64)
    (slow,) = toy.differences(lambda: clean_loss(method.network, shares).detach(), [shares])
    weights = slow_weights(twice.tolist())
    assert weights == pytest.approx(slow_weights(slow.tolist()), abs=1e-7)
    if network is toy.network:
        hand_checked = [0.47521057369967906, 0.0, 0.5247894263003209, 0.0]
        assert weights == pytest.approx(hand_checked, abs=1e-8)
    batch, before = toy.noisy_batch(), toy.weights_of(method.network)
    losses = F.cross_entropy(
        toy.at_weights(method.network, list(method.network.parameters()), batch.inputs), batch.label, reduction="none"
    )
    weighted = sum(weight * loss for weight, loss in zip(weights, losses, strict=True))
    gradient = torch.autograd.grad(weighted, list(method.network.parameters()))
    result = method.step(batch, toy.endless(toy.clean_batch()))
    assert float(result.scalars["loss"]) == pytest.approx(float(weighted.detach()))
    assert float(result.scalars["weights/used"]) == sum(weight > 0 for weight in weights) / 4
    assert toy.close(toy.weights_of(method.network), [p - 0.1 * g for p, g in zip(before, gradient, strict=True)])


def test_weights_are_never_negative_and_sum_to_one_or_are_all_zero() -> None:
    assert positive_shares(torch.tensor([3.0, -2.0, 1.0, 0.0])).tolist() == [0.75, 0.0, 0.25, 0.0]
    assert positive_shares(torch.tensor([-3.0, -2.0])).tolist() == [0.0, 0.0]
    assert positive_shares(torch.zeros(2)).tolist() == [0.0, 0.0]
    tiny = positive_shares(torch.tensor([1e-30, 3e-30]))
    assert tiny.tolist() == pytest.approx([0.25, 0.75])


def step_on(label: int) -> tuple[list[Tensor], LearningToReweight]:
    """A batch of one clean sample twice, with this label."""
    clean = toy.clean_batch()
    method = LearningToReweight(toy.task())
    one = Batch(clean.index[:1], clean.inputs[:1], clean.label[:1])
    noisy = Batch(torch.arange(2), clean.inputs[:1].repeat(2, 1), torch.full((2,), label))
    before = toy.weights_of(method.network)
    method.step(noisy, toy.endless(one))
    return before, method


def test_a_copy_of_a_clean_sample_counts_and_one_with_a_wrong_label_does_not() -> None:
    right = int(toy.clean_batch().label[0])
    before, method = step_on(right)
    assert not toy.close(toy.weights_of(method.network), before)
    before, method = step_on((right + 1) % 3)
    assert toy.close(toy.weights_of(method.network), before)


@pytest.mark.parametrize("stop", [3, 25])
def test_an_interrupted_run_ends_the_same(stop: int) -> None:
    check_resume(build, stop)


def test_a_step_never_waits_for_a_device() -> None:
    check_step(*build(), epoch=2)


def test_it_learns() -> None:
    method, data = build()
    metrics = train_all(method, data)
    assert accuracy(method) > 0.85
    assert 0 < metrics[-1]["weights/used"] < 1


def test_a_mistake_is_told_with_a_way_out() -> None:
    settings: dict[str, Any] = {"mode": "exakt"}
    with pytest.raises(ValueError, match="Did you mean 'exact'"):
        LearningToReweight(toy.task(), **settings)

"""Meta-Weight-Net: its weight gradient three ways, a second version of the whole step, and the limits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typer.testing import CliRunner

from mslg.cli.app import app
from mslg.data.batch import Batch
from mslg.methods.meta_weight_net import MetaWeightNet
from mslg.training.schedules import cosine
from tests.support import toy
from tests.support.blobs import blobs
from tests.support.method_problems import Problem, accuracy, check_resume, check_step, problem
from tests.support.method_problems import run as train_all

NETWORKS = [toy.network, toy.normalised_network]


def build(**settings: Any) -> Problem:
    task, data = problem(schedule=cosine)
    return MetaWeightNet(task, **settings), data


def small(network: Callable[[], nn.Module] = toy.network, **settings: Any) -> MetaWeightNet:
    method = MetaWeightNet(toy.task(network), hidden=3, **settings)
    toy.go_to(method, 0)
    return method


def clean_loss_ahead(method: MetaWeightNet, distance: float, *, create_graph: bool = False) -> Tensor:
    """The clean loss after the look-ahead, written out: everything between it and the weight net is recorded."""
    noisy, clean = toy.noisy_batch(), toy.clean_batch()
    parameters = list(method.network.parameters())
    losses = F.cross_entropy(toy.at_weights(method.network, parameters, noisy.inputs), noisy.label, reduction="none")
    weights = method.weight_net(losses.detach()[:, None])[:, 0]
    inner = (weights * losses).sum() / (weights.sum() if method.normalize else len(losses))
    gradient = torch.autograd.grad(inner, parameters, create_graph=create_graph)
    ahead = [p - distance * g for p, g in zip(parameters, gradient, strict=True)]
    return F.cross_entropy(toy.at_weights(method.network, ahead, clean.inputs), clean.label)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("settings", [{}, {"look_ahead": 0.7}, {"normalize": True}, {"mode": "double-backward"}])
def test_the_weight_gradient_is_that_of_double_backward_and_of_differences(
    network: Callable[[], nn.Module], settings: dict[str, Any]
) -> None:
    method = small(network, **settings)
    distance = settings.get("look_ahead", 0.1)  # the task's learning rate
    parameters = list(method.weight_net.parameters())
    reference = copy.deepcopy(method)
    twice = torch.autograd.grad(
        clean_loss_ahead(reference, distance, create_graph=True), list(reference.weight_net.parameters())
    )
    slow = toy.differences(
        lambda: clean_loss_ahead(reference, distance).detach(), list(reference.weight_net.parameters()), 1e-5
    )
    method.step(toy.noisy_batch(), toy.endless(toy.clean_batch()))
    found = [p.grad for p in parameters]
    assert toy.close(found, twice, 1e-12)
    assert toy.close(found, slow, 1e-10)
    assert max(float(g.abs().max()) for g in found) > 1e-5


def test_the_gradient_of_the_weights_has_the_hand_checked_size() -> None:
    """−(η/N)·D_g ℓ with η = 0.5 and one free weight a sample, against differences and a value worked out in numpy."""
    drawn = toy.sample_weights()
    network, noisy, clean = toy.network(), toy.noisy_batch(), toy.clean_batch()
    parameters = list(network.parameters())

    def ahead(weights: Tensor) -> Tensor:
        losses = F.cross_entropy(toy.at_weights(network, parameters, noisy.inputs), noisy.label, reduction="none")
        gradient = torch.autograd.grad((weights * losses).mean(), parameters)
        moved = [p - 0.5 * g for p, g in zip(parameters, gradient, strict=True)]
        return F.cross_entropy(toy.at_weights(network, moved, clean.inputs), clean.label)

    (slow,) = toy.differences(lambda: ahead(drawn).detach(), [drawn])
    method = MetaWeightNet(toy.task(), hidden=2, look_ahead=0.5)

    class Table(nn.Module):
        """Stands in for the weight net: one free weight a sample."""

        def __init__(self) -> None:
            super().__init__()
            self.entries = nn.Parameter(drawn.clone())

        def forward(self, losses: Tensor) -> Tensor:
            return self.entries.unsqueeze(1) + 0 * losses

    method.weight_net = Table()  # type: ignore[assignment]
    method.step(noisy, toy.endless(clean))
    assert toy.close([method.weight_net.entries.grad], [slow], 1e-9)
    assert float(slow.abs().max()) == pytest.approx(0.08471663957010378, rel=1e-6)


def reference_run(steps: int, network: Callable[[], nn.Module]) -> tuple[list[Tensor], list[Tensor]]:
    """The published algorithm, with the autograd of the whole look-ahead and a fresh pass for the base loss."""
    method = small(network)
    net, weigh, noisy = method.network, method.weight_net, toy.noisy_batch()
    adam = torch.optim.Adam(weigh.parameters(), lr=1e-3, weight_decay=1e-4)
    for _ in range(steps):
        gradient = torch.autograd.grad(clean_loss_ahead(method, 0.1, create_graph=True), list(weigh.parameters()))
        for parameter, slope in zip(weigh.parameters(), gradient, strict=True):
            parameter.grad = slope
        adam.step()
        losses = F.cross_entropy(net(noisy.inputs), noisy.label, reduction="none")
        total = torch.zeros((), dtype=torch.float64)
        for loss in losses:
            total = total + weigh(loss.detach().view(1, 1)).detach()[0, 0] * loss
        gradient = torch.autograd.grad(total / len(losses), list(net.parameters()))
        for parameter, slope in zip(net.parameters(), gradient, strict=True):
            parameter.data -= 0.1 * slope
    return toy.weights_of(net), toy.weights_of(weigh)


@pytest.mark.parametrize("network", NETWORKS)
def test_some_steps_equal_the_published_algorithm(network: Callable[[], nn.Module]) -> None:
    method = small(network)
    for _ in range(5):
        method.step(toy.noisy_batch(), toy.endless(toy.clean_batch()))
    expected_network, expected_weights = reference_run(5, network)
    assert toy.close(toy.weights_of(method.network), expected_network)
    assert toy.close(toy.weights_of(method.weight_net), expected_weights)


def test_weights_lie_between_zero_and_one_and_depend_on_the_loss_alone() -> None:
    weights = small().weights(torch.tensor([0.3, 2.0, 0.3, 50.0], dtype=torch.float64)).detach()
    assert bool(((weights > 0) & (weights < 1)).all())
    assert float(weights[0]) == float(weights[2]) != float(weights[1])
    normalised = small(normalize=True).weights(torch.tensor([0.3, 2.0], dtype=torch.float64))
    assert float(normalised.detach().mean()) == pytest.approx(1)


def test_a_weight_net_that_says_a_constant_gives_that_share_of_cross_entropy() -> None:
    method = small(weight_rate=0.0, net_decay=0.0)
    with torch.no_grad():
        method.weight_net[2].weight.zero_()
        method.weight_net[2].bias.fill_(math.log(0.3 / 0.7))
    before = toy.weights_of(method.network)
    batch = toy.noisy_batch()
    plain = torch.autograd.grad(
        F.cross_entropy(method.network(batch.inputs), batch.label), list(method.network.parameters())
    )
    method.step(batch, toy.endless(toy.clean_batch()))
    expected = [p - 0.1 * 0.3 * g for p, g in zip(before, plain, strict=True)]
    assert toy.close(toy.weights_of(method.network), expected)


def test_a_sample_that_agrees_with_the_clean_ones_comes_to_weigh_more() -> None:
    clean = toy.clean_batch()
    right, wrong = int(clean.label[0]), int(clean.label[0] + 1) % 3
    same = torch.stack([clean.inputs[0]] * 2)
    noisy = Batch(torch.arange(2), same, torch.tensor([right, wrong]))
    task = toy.task(rate=1e-9)  # the network stands still
    method = MetaWeightNet(task, look_ahead=0.5, weight_rate=0.05)
    for _ in range(30):
        method.step(noisy, toy.endless(Batch(clean.index[:1], clean.inputs[:1], clean.label[:1])))
    losses = F.cross_entropy(method.network(same), noisy.label, reduction="none")
    agreeing, other = method.weights(losses).tolist()
    assert agreeing > other + 0.2


def test_the_weight_nets_rate_does_not_follow_the_schedule_and_is_in_the_checkpoint() -> None:
    method, data = build()
    toy.go_to(method, 5, 0.9)
    assert method.learning_rate() < 0.001
    assert method.weight_optimizer.param_groups[0]["lr"] == 1e-3
    train_all(method, data, 1)
    assert "weight net" in method.get_extra_state()["optimizers"]
    assert any(name.startswith("weight_net.") for name in method.state_dict())
    assert method.weight_optimizer.param_groups[0]["lr"] == 1e-3


@pytest.mark.parametrize("stop", [3, 25])
def test_an_interrupted_run_ends_the_same(stop: int) -> None:
    check_resume(build, stop)


@pytest.mark.parametrize("settings", [{}, {"normalize": True, "look_ahead": 0.1}])
def test_a_step_never_waits_for_a_device(settings: dict[str, Any]) -> None:
    check_step(*build(**settings), epoch=2)


def test_it_learns() -> None:
    method, data = build()
    metrics = train_all(method, data)
    assert accuracy(method) > 0.85
    assert metrics[-1]["clean/loss"] < metrics[0]["clean/loss"]
    assert {"weights/mean", "weights/spread", "train/loss"} <= set(metrics[-1])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"hidden": 0}, "hidden is 0; the weight net needs at least 1 hidden unit"),
        ({"weight_rate": -1}, "weight_rate is -1; it must be 0 or more"),
        ({"look_ahead": 0.0}, r'look_ahead is 0.0; .* must be above 0 \(or "learning-rate"\)'),
        ({"look_ahead": "learning_rate"}, "Did you mean 'learning-rate'"),
        ({"mode": "exakt"}, "Did you mean 'exact'"),
    ],
)
def test_a_mistake_is_told_with_a_way_out(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MetaWeightNet(toy.task(), **settings)


def test_its_settings_in_a_folder_start_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`weight_decay` is an argument of the method and a setting of the run: it was passed twice."""
    monkeypatch.chdir(tmp_path)
    data, quick = blobs(), ["-q", "--no-report", "--no-compare"]
    np.savez("data.npz", X=data.x, y=data.given, verified=data.true)

    def run(*words: str) -> None:
        result = CliRunner().invoke(app, [*words])
        assert result.exit_code == 0, result.exception

    run("fit", "data.npz", "--clean", "20", "--method", "meta-weight-net", "--epochs", "2", "-o", "run", *quick)
    before = Path("run/model.safetensors").read_bytes()
    Path("run/done").unlink()
    run("fit", "-o", "run", "--resume", *quick)
    run("fit", "--recipe", "run/config.toml", "-o", "again", *quick)
    run("fit", "--from", "run", "-o", "next", "--epochs", "2", *quick)
    run("review-next", "run", "-n", "2")
    assert Path("run/model.safetensors").read_bytes() == Path("again/model.safetensors").read_bytes() == before

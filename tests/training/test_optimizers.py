"""Optimizers and schedules as PyTorch users have them, and weights of samples; what the record says is what ran."""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import mslg
from mslg.data.weighted_order import weighted_order
from mslg.runtime.seeds import generator
from mslg.training.schedules import schedule
from tests.support.blobs import blobs, small_network

DATA = blobs()
CLEAN = (DATA.clean_x, DATA.clean_y)
QUICK: dict[str, Any] = {"epochs": 4, "batch_size": 32, "progress": False, "device": "cpu", "method": "cross-entropy"}


def fit(**more: Any) -> mslg.Result:
    settings = {**QUICK, **more}
    return mslg.fit(small_network, settings.pop("noisy", (DATA.x, DATA.given)), settings.pop("clean", None), **settings)


def by_layer(network: nn.Module) -> torch.optim.Optimizer:
    """Layer-wise rates."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    groups = [{"params": layer.parameters(), "lr": 0.1 * 0.5**depth} for depth, layer in enumerate(reversed(layers))]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.8)


@pytest.mark.parametrize("method", ["cross-entropy", "mslg", "cross-fitted"])
def test_an_optimizer_may_be_a_function_of_the_module(method: str, tmp_path: Path) -> None:
    result = fit(optimizer=by_layer, method=method, clean=CLEAN, output=tmp_path)
    (_, optimizer), *_ = result.method.trainable_networks()
    assert len(optimizer.param_groups) == 2
    recorded = tomllib.loads((tmp_path / "config.toml").read_text())["train"]
    assert recorded["learning_rate"] == [0.1, 0.05]
    assert recorded["momentum"] == 0.8
    assert recorded["optimizer"] == "by_layer"


def test_an_optimizer_of_another_network_is_an_error() -> None:
    other = small_network()
    with pytest.raises(ValueError, match="the SGD holds 6 of 6 parameters that are not the network's"):
        fit(optimizer=lambda p: torch.optim.SGD(other.parameters(), lr=0.1))
    with pytest.raises(TypeError, match="the function that makes the optimizer returned a Linear, not an optimizer"):
        fit(optimizer=lambda module: nn.Linear(2, 2))
    with pytest.raises(ValueError, match="trains parameters of several modules together; pass a function of the param"):
        fit(optimizer=by_layer, method="emlc", clean=CLEAN)


SCHEDULERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "steps": (partial(lr_scheduler.StepLR, step_size=2, gamma=0.1), {}),
    "cosine": (lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=4), {}),
    "one cycle": (
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=4 * 8),
        {"schedule_every": "step"},
    ),
    "warm-up, then decay": (
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer,
            [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2), lr_scheduler.ExponentialLR(optimizer, 0.9)],
            [2],
        ),
        {},
    ),
}


@pytest.mark.parametrize("optimizer", ["sgd", lambda p: torch.optim.SGD(p, lr=0.02)], ids=["ours", "a function"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_any_torch_scheduler_is_followed_to_the_last_digit(name: str, optimizer: Any) -> None:
    make, how = SCHEDULERS[name]
    found = fit(schedule=make, optimizer=optimizer, learning_rate=0.05, **how).history["optim/lr"].tolist()
    plain = torch.optim.SGD(small_network().parameters(), lr=0.05 if optimizer == "sgd" else 0.02, momentum=0.9)
    scheduler, expected = make(plain), []
    per_epoch = 8 if how else 1
    for _ in range(QUICK["epochs"]):
        for step in range(per_epoch):
            if step == per_epoch - 1:
                expected.append(plain.param_groups[0]["lr"])
            plain.step()
            scheduler.step()
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_scheduler_that_needs_to_see_the_loss_is_refused() -> None:
    with pytest.raises(
        ValueError, match="schedule makes a ReduceLROnPlateau; the learning rate must follow from the pos"
    ):
        fit(schedule=lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer))
    assert schedule(lambda progress: 1 - progress)(0.25) == 0.75


def test_names_from_elsewhere_are_understood() -> None:
    for name, meant in {"lr": "learning_rate", "max_epochs": "epochs", "num_workers": "loader="}.items():
        with pytest.raises(
            ValueError, match=f"unknown setting of cross-entropy or of fit '{name}'. Did you mean {meant}"
        ):
            fit(**{name: 1})


def naive_share(weights: np.ndarray, size: int, batches: int, rounds: int) -> np.ndarray:
    """How often each sample is expected: by weight, at most once a batch, what is cut off shared by the others."""
    expected = np.zeros(len(weights))
    left, able = float(size * batches), weights > 0
    while left > 1e-9 and able.any():
        for place in np.flatnonzero(able):
            expected[place] += left * weights[place] / weights[able].sum()
        left = float(np.maximum(expected - batches, 0).sum())
        expected = np.minimum(expected, batches)
        able = able & (expected < batches)
    return expected * rounds


@pytest.mark.parametrize("weights", [[1, 1, 1, 1, 1, 1], [5, 1, 1, 1, 1, 0], [9, 9, 0.1, 0.1, 0.1, 0.1]])
def test_samples_are_drawn_by_weight_and_never_twice_in_a_batch(weights: list[float]) -> None:
    counts, rounds = np.zeros(6), 300
    for number in range(rounds):
        order = weighted_order(torch.tensor(weights), [3, 3, 3, 3], generator(0, "weights", number))
        assert len(order) == 12
        assert all(len(set(batch.tolist())) == 3 for batch in order.split(3))
        counts += np.bincount(order.numpy(), minlength=6)
    expected = naive_share(np.array(weights), 3, 4, rounds)
    assert np.abs(counts - expected).max() < 0.12 * rounds


def test_class_and_sample_weights_move_what_is_learned(tmp_path: Path) -> None:
    favoured = fit(class_weights=[8, 1, 1, 1], output=tmp_path)
    drawn = (favoured.predict(DATA.test_x) == "0").mean()
    assert drawn > (fit().predict(DATA.test_x) == "0").mean()
    assert tomllib.loads((tmp_path / "config.toml").read_text())["train"]["class_weights"] == [8.0, 1.0, 1.0, 1.0]
    by_sample = np.where(DATA.given == 0, 8.0, 1.0)
    assert fit(sample_weights=by_sample).history["train/loss"].tolist() == favoured.history["train/loss"].tolist()
    data = TensorDataset(torch.as_tensor(DATA.x), torch.as_tensor(DATA.given))
    loader = DataLoader(data, 32, sampler=WeightedRandomSampler(by_sample.tolist(), 240))
    assert fit(noisy=loader).history["train/loss"].tolist() == favoured.history["train/loss"].tolist()


def test_weights_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ValueError, match="class_weights has 2 numbers, and there are 4 classes: 0, 1, 2, 3"):
        fit(class_weights=[1, 2])
    with pytest.raises(ValueError, match="sample_weights has 3 numbers for 240 samples"):
        fit(sample_weights=[1, 2, 3])
    with pytest.raises(ValueError, match="sample_weights must be 0 or more, finite, and not all 0"):
        fit(sample_weights=-np.ones(240))
    with pytest.raises(ValueError, match="class_balance and class_weights: give one of them"):
        fit(class_weights=[1, 1, 1, 1], class_balance=True)

"""MSLG as published: what clean samples do to labels, and what noisy ones in their place do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mslg
from mslg.data.make_splits import make_splits
from mslg.data.source import make_source
from mslg.data.splits import Splits
from mslg.methods.mslg.method import MSLG
from mslg.training.method import Task
from tests.support.blobs import blobs, small_network
from tests.support.method_problems import run as train_all


def two_gaussians(seed: int, *, noisy_clean: bool) -> tuple[MSLG, Splits, Tensor, Tensor]:
    """Two classes, two in five labels flipped, a linear model, and forty clean samples, flipped likewise or not."""
    random = np.random.default_rng(seed)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        true = np.arange(count) % 2
        centres = np.where(true[:, None] == 1, 1.5, -1.5) * np.array([1.0, 0.5])
        return (random.normal(size=(count, 2)) + centres).astype(np.float32), true

    def flipped(labels: np.ndarray) -> np.ndarray:
        return np.where(random.random(len(labels)) < 0.4, 1 - labels, labels)

    x, true = draw(400)
    noisy = make_source(x, flipped(true))
    clean_x, clean_y = draw(40)
    clean = make_source(clean_x, flipped(clean_y) if noisy_clean else clean_y)
    data = make_splits(noisy, clean, batch_size=50, seed=seed)
    task = Task(
        noisy.label,
        2,
        lambda: nn.Linear(2, 2),
        30,
        50,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        seed=seed,
    )
    method = MSLG(task, prior="given", loss="reverse-kl", entropy_weight=1.0, start=3.0, label_rate=5.0)
    return method, data, torch.as_tensor(x), torch.as_tensor(true)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_clean_samples_make_labels_better_and_noisy_ones_in_their_place_do_not(seed: int) -> None:
    accuracies = {}
    for noisy_clean in (False, True):
        method, data, x, true = two_gaussians(seed, noisy_clean=noisy_clean)
        train_all(method, data)
        given = method.task.given
        soft = method.soft_labels(torch.arange(400))
        accuracies[noisy_clean] = [share(labels == true) for labels in (given, soft.argmax(1))]
        if not noisy_clean:
            assert share(method.predict(x).argmax(1) == true) > 0.85
            wrong = given != true
            towards = method.table.displacement.rows.gather(1, true.unsqueeze(1)).squeeze(1) > 0
            assert share(towards[wrong]) > 0.6
    assert accuracies[False][1] > accuracies[False][0] + 0.02
    assert accuracies[True][1] <= accuracies[True][0]


def share(mask: Tensor) -> float:
    return float(mask.double().mean())


def test_the_readmes_own_loop_works() -> None:
    data = blobs()
    network, table = small_network(), mslg.LabelTable(torch.as_tensor(data.given), 4)
    engine = mslg.Bilevel(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    x, y = torch.as_tensor(data.x), torch.as_tensor(data.given)
    clean = mslg.Batch(torch.arange(24), torch.as_tensor(data.clean_x), torch.as_tensor(data.clean_y))
    for _ in range(15):
        for index in torch.randperm(240).split(40):
            result = mslg.mslg_step(engine, table, optimizer, mslg.Batch(index, x[index], y[index]), clean)
    assert torch.isfinite(result.scalars["loss"])
    network.eval()
    accuracy = (network(torch.as_tensor(data.test_x)).argmax(1).numpy() == data.test_y).mean()
    assert accuracy > 0.8

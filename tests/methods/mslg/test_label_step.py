"""The step, opened: labels and logits come out, and training is the caller's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mslg import Batch, Bilevel, LabelTable, label_step, mslg_step
from tests.support.blobs import blobs, small_network

DATA = blobs()
INDEX = torch.arange(32)
BATCH = Batch(INDEX, torch.as_tensor(DATA.x[:32]), torch.as_tensor(DATA.given[:32]))
CLEAN = Batch(torch.arange(24), torch.as_tensor(DATA.clean_x), torch.as_tensor(DATA.clean_y))
OPTIONS: dict[str, Any] = {"label_rate": 15.0, "loss": "reverse-kl", "entropy_weight": 0.5}


def parts() -> tuple[nn.Module, Bilevel, LabelTable]:
    torch.manual_seed(0)
    network = small_network()
    return network, Bilevel(network), LabelTable(torch.as_tensor(DATA.given), classes=4, start=5)


def test_it_is_the_step_of_mslg_without_the_training() -> None:
    network, engine, table = parts()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    expected = mslg_step(engine, table, optimizer, BATCH, CLEAN, **OPTIONS)
    opened, engine, opened_table = parts()
    weights = copy.deepcopy(dict(opened.named_parameters()))
    for parameter in opened.parameters():
        parameter.grad = torch.ones_like(parameter)
    step = label_step(engine, opened_table, BATCH, CLEAN, **OPTIONS)
    assert all(torch.equal(value, weights[name]) for name, value in opened.named_parameters())
    assert all(bool((parameter.grad == 1).all()) for parameter in opened.parameters())  # type: ignore[union-attr]
    torch.testing.assert_close(step.soft, opened_table.soft(INDEX), rtol=1e-6, atol=1e-7)
    assert torch.equal(opened_table.soft(INDEX), table.soft(INDEX))
    assert {name: float(value) for name, value in step.scalars.items()} == {
        name: float(value) for name, value in expected.scalars.items()
    }
    mine = torch.optim.SGD(opened.parameters(), lr=0.1)
    mine.zero_grad()
    step.loss.backward()
    mine.step()
    for one, other in zip(opened.parameters(), network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_any_loss_accumulated_over_two_batches_trains() -> None:
    network, engine, table = parts()
    halves = [Batch(INDEX[part], BATCH.inputs[part], BATCH.label[part]) for part in (slice(16), slice(16, 32))]
    for half in halves:
        step = label_step(engine, table, half, CLEAN, label_rate=15.0)
        (F.mse_loss(step.logits.softmax(1), step.soft) / 2).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert not torch.equal(table.soft(INDEX), LabelTable(torch.as_tensor(DATA.given), classes=4, start=5).soft(INDEX))


def test_an_optimizer_of_another_network_is_an_error() -> None:
    _, engine, table = parts()
    other = torch.optim.SGD(small_network().parameters(), lr=0.1)
    with pytest.raises(
        ValueError, match=r"6 of 6 parameters that are not the network's.*network that the engine was made"
    ):
        mslg_step(engine, table, other, BATCH, CLEAN)
    with pytest.raises(ValueError, match="clean is None and the engine keeps no clean gradient"):
        label_step(engine, table, BATCH, None)

"""Dropout with cheap masks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mslg.networks.dropout import Dropout
from mslg.networks.mlp import MLP


def drawn(layer: nn.Module, rows: torch.Tensor, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    found: torch.Tensor = layer(rows)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_a_share_is_dropped_and_the_mean_is_kept(share: float, dtype: torch.dtype) -> None:
    found = drawn(Dropout(share), torch.ones(2000, 100, dtype=dtype))
    kept = found != 0
    assert float((~kept).double().mean()) == pytest.approx(share, abs=0.005)
    assert torch.allclose(found[kept], torch.tensor(1 / (1 - share), dtype=dtype))
    assert float(found.double().mean()) == pytest.approx(1, abs=0.02)
    assert found.dtype == dtype
    columns = kept.double().mean(0)
    assert float(columns.std()) < 0.02, "every unit alike"


def test_nothing_is_dropped_in_evaluation_or_at_a_share_of_zero() -> None:
    rows = torch.randn(7, 5)
    assert torch.equal(drawn(Dropout(0.5).eval(), rows), rows)
    assert torch.equal(drawn(Dropout(0.0), rows), rows)
    assert not drawn(Dropout(1.0), rows).any()


def test_the_mask_is_a_function_of_the_seed() -> None:
    rows = torch.ones(50, 50)
    first, same, other = (drawn(Dropout(0.5), rows, seed) for seed in (3, 3, 4))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_the_gradient_goes_through_the_kept_units_only() -> None:
    rows = torch.randn(20, 30, dtype=torch.float64, requires_grad=True)
    found = drawn(Dropout(0.4), rows)
    (gradient,) = torch.autograd.grad(found.sum(), rows)
    assert torch.allclose(gradient, (found != 0).double() / 0.6)


def test_the_perceptron_has_it_after_every_hidden_layer() -> None:
    network = MLP(12, 3, hidden=(8, 4), dropout=0.3)
    assert [module.p for module in network.modules() if isinstance(module, nn.Dropout)] == [0.3, 0.3]
    assert network(torch.randn(5, 3, 4)).shape == (5, 3)

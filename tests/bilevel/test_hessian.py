"""Hessian times vector against the Hessian itself, and its fallback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from mslg.bilevel import hessian_vector_product

torch.manual_seed(0)
X = torch.randn(6, 3, dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 0, 1, 2])
PARAMETERS = [torch.randn(3, 4, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)]
VECTOR = [torch.randn_like(p) for p in PARAMETERS]


def loss(parameters: Sequence[Tensor]) -> Tensor:
    return torch.nn.functional.cross_entropy(torch.tanh(X @ parameters[0]) @ parameters[1], Y)


class Cut(torch.autograd.Function):
    """The identity, with a backward pass that cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient.detach().clone()


def whole_hessian() -> list[Tensor]:
    flat = torch.cat([p.flatten() for p in PARAMETERS])

    def of_flat(values: Tensor) -> Tensor:
        return loss([values[:12].view(3, 4), values[12:].view(4, 3)])

    product = torch.autograd.functional.hessian(of_flat, flat) @ torch.cat([v.flatten() for v in VECTOR])
    return [product[:12].view(3, 4), product[12:].view(4, 3)]


def test_it_is_the_hessian_times_the_vector() -> None:
    for found, expected in zip(hessian_vector_product(loss, PARAMETERS, VECTOR), whole_hessian(), strict=True):
        assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_an_operator_without_a_second_derivative_is_differenced_and_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mslg.bilevel.hessian._logged", set())

    def cut_loss(parameters: Sequence[Tensor]) -> Tensor:
        return loss([Cut.apply(p) for p in parameters])

    for _ in range(2):
        for found, expected in zip(hessian_vector_product(cut_loss, PARAMETERS, VECTOR), whole_hessian(), strict=True):
            assert torch.allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert len([r for r in caplog.records if "differences of gradients" in r.message]) == 1


def test_a_loss_without_curvature_gives_zero() -> None:
    product = hessian_vector_product(lambda p: (p[0] * 2).sum() + p[1].sum(), PARAMETERS, VECTOR)
    assert all(torch.allclose(part, torch.zeros_like(part), atol=1e-8) for part in product)

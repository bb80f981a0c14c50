"""A transition matrix kept as its counts equals the whole one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mslg.noise.smoothed_counts import LogColumns, SmoothedCounts
from mslg.noise.transition_matrix import count
from tests.support.slow_matrix import slowly_smoothed


def labels(samples: int, classes: int, rate: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    true = torch.randint(classes, (samples,), generator=random)
    other = torch.randint(classes, (samples,), generator=random)
    return torch.where(torch.rand(samples, generator=random) < rate, other, true), true


@pytest.mark.parametrize(("samples", "rate"), [(200, 0.4), (12, 0.3), (50, 0.0)])
def test_equals_the_slow_version(samples: int, rate: float) -> None:
    given, true = labels(samples, 5, rate)
    found = SmoothedCounts.of(given, true, 5)
    expected = slowly_smoothed(count(given, true, 5))
    assert torch.allclose(found.dense(), expected)
    assert torch.allclose(found.dense().sum(1), torch.ones(5, dtype=torch.float64))
    asked = torch.tensor([3, 0, 3, 4])
    assert torch.allclose(found.columns(asked), expected.t()[asked])
    assert torch.allclose(LogColumns(found, 1e-6)[asked], expected.t()[asked].log())


def test_sums_over_the_matrix_do_without_it() -> None:
    found = SmoothedCounts.of(*labels(60, 6, 0.4, seed=1), 6)
    shares = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(found.given_shares(shares), shares @ found.dense())
    assert torch.allclose(found.mean_over_given(shares), found.dense() @ shares)


def test_ten_thousand_classes_take_no_square() -> None:
    given, true = labels(500, 10_000, 0.3)
    found = SmoothedCounts.of(given, true, 10_000)
    assert len(found.count) <= 500
    columns = found.columns(given[:20])
    assert columns.shape == (20, 10_000)
    assert bool((columns > 0).all())

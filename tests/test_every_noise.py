"""One contract for every noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mslg.noise import NOISES
from mslg.noise.uniform import uniform


@pytest.mark.parametrize("name", NOISES)
@given(rate=st.floats(0, 1), classes=st.integers(2, 7), each=st.integers(1, 40), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_noise_keeps_its_promises(name: str, rate: float, classes: int, each: int, seed: int) -> None:
    label = torch.arange(classes).repeat(each)
    make = NOISES.load(name)
    found = make(label, rate, np.random.default_rng(seed), classes=classes)
    again = make(label, rate, np.random.default_rng(seed), classes=classes)
    assert torch.equal(found.label, again.label)
    assert torch.equal(label, torch.arange(classes).repeat(each)), "the labels passed in are left alone"
    assert int(found.label.min()) >= 0
    assert int(found.label.max()) < classes
    assert torch.allclose(found.nominal.sum(1), torch.ones(classes, dtype=torch.float64))
    assert torch.allclose(found.realised.sum(1), torch.ones(classes, dtype=torch.float64))
    assert found.rate <= rate + 1e-9
    assert found.rate >= rate - classes / each


@pytest.mark.parametrize("name", NOISES)
def test_rate_zero_changes_nothing(name: str) -> None:
    label = torch.arange(5).repeat(20)
    assert torch.equal(NOISES.load(name)(label, 0.0, np.random.default_rng(0), classes=5).label, label)


@pytest.mark.parametrize("name", NOISES)
def test_an_impossible_rate_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"a noise rate of 1.5 is not possible; it is a share between 0 and 1"):
        NOISES.load(name)(torch.tensor([0, 1]), 1.5, np.random.default_rng(0), classes=2)


def test_uniform_noise_has_the_published_counts() -> None:
    label = torch.arange(10).repeat_interleave(5000)
    found = uniform(label, 0.35, np.random.default_rng(0), classes=10)
    counts = torch.bincount(label * 10 + found.label, minlength=100).view(10, 10)
    off = counts[~torch.eye(10, dtype=torch.bool)]
    assert off.unique().tolist() == [194]
    assert counts.diagonal().unique().tolist() == [3254]
    for rate, realised in {0.2: 0.1998, 0.4: 0.3996, 0.6: 0.5994, 0.8: 0.7992}.items():
        assert uniform(label, rate, np.random.default_rng(0), classes=10).rate == pytest.approx(realised, abs=1e-12)


def test_filling_up_reaches_the_rate_in_small_classes() -> None:
    label = torch.arange(10).repeat(50)
    found = uniform(label, 0.4, np.random.default_rng(0), classes=10, fill=True)
    assert found.rate == 0.4
    assert (found.label != label).view(50, 10).sum(0).tolist() == [20] * 10


def test_pair_noise_goes_to_the_next_class() -> None:
    label = torch.arange(4).repeat(25)
    found = NOISES.load("pair")(label, 0.4, np.random.default_rng(0), classes=4)
    moved = found.label != label
    assert int(moved.sum()) == 40
    assert torch.equal(found.label[moved], (label[moved] + 1) % 4)

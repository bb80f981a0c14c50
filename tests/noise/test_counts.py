"""How many labels a noise changes, and what it says when it cannot."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mslg.noise import NOISES
from mslg.noise.corruption import check
from mslg.testing.noises import apply

BY_CLASS = ("uniform", "pair", "class-map", "matrix", "confusion")  # exact counts, rounded down in each cell
RANKED = ("feature-dependent", "feature-dependent-released")  # exactly ⌊rate·n⌋ samples of the whole set


@pytest.mark.parametrize("name", BY_CLASS)
@given(rate=st.floats(0, 1), classes=st.integers(2, 7), each=st.integers(1, 40), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_every_cell_has_its_count_rounded_down(name: str, rate: float, classes: int, each: int, seed: int) -> None:
    label = torch.arange(classes).repeat(each)
    found = apply(NOISES.load(name), label, rate, seed, classes)
    for own in range(classes):
        for other in set(range(classes)) - {own}:
            moved = int(((label == own) & (found.label == other)).sum())
            assert moved == int(each * float(found.nominal[own, other]) + 1e-9)
    assert rate - classes / each <= found.rate <= rate + 1e-9
    assert found.rate == float((found.label != label).double().mean())


@pytest.mark.parametrize("name", RANKED)
@given(rate=st.floats(0, 1), classes=st.integers(2, 7), each=st.integers(1, 40), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_exactly_the_share_asked_for_changes(name: str, rate: float, classes: int, each: int, seed: int) -> None:
    label = torch.arange(classes).repeat(each)
    found = apply(NOISES.load(name), label, rate, seed, classes)
    assert int((found.label != label).sum()) == int(rate * len(label) + 1e-9)
    assert torch.equal(found.nominal, found.realised)


@pytest.mark.parametrize("name", ["pair", "class-map", "matrix", "confusion"])
def test_drawn_labels_come_out_near_the_rate(name: str) -> None:
    label = torch.arange(5).repeat(4000)
    found = apply(NOISES.load(name), label, 0.3, 0, 5, exact=False)
    assert found.rate == pytest.approx(0.3, abs=0.01)
    assert found.rate != 0.3, "drawn, not counted"
    assert torch.allclose(found.realised, found.nominal, atol=0.03)


@pytest.mark.parametrize("name", NOISES.built_in)
def test_rate_zero_is_the_identity(name: str) -> None:
    found = apply(NOISES.load(name), torch.arange(5).repeat(20), 0.0, 0, 5)
    assert torch.equal(found.realised, torch.eye(5, dtype=torch.float64))


def test_what_cannot_be_corrupted_is_said() -> None:
    label = torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"the noise rate is 1.5; it must be between 0 and 1"):
        check(label, 1.5, 2)
    with pytest.raises(ValueError, match="this noise needs a rate"):
        check(label, None, 2)
    with pytest.raises(ValueError, match="needs another class, and there is 1"):
        check(torch.zeros(4, dtype=torch.int64), 0.5, 1)
    with pytest.raises(ValueError, match=r"there is the label -1 \(1 such samples\); allowed: 0 to 2"):
        check(torch.tensor([0, -1, 2]), 0.5, 3)
    message = r"the labels are torch.float32 of shape \(3,\); a flat int64 tensor is needed"
    with pytest.raises(TypeError, match=message):
        check(torch.tensor([0.0, 1.0, 2.0]), 0.5, 3)

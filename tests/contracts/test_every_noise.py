"""One contract for every noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mslg.noise import NOISES
from mslg.noise.corruption import Corruption

Extras = Callable[[int, int, np.random.Generator], dict[str, Any]]


def probabilities(samples: int, classes: int, generator: np.random.Generator) -> dict[str, Any]:
    # Rounding makes ties and zeros, also for the first place.
    rows = generator.dirichlet(np.full(classes, 0.3), samples).round(1)
    rows[:, 0] += 1 - rows.sum(1)
    return {"probabilities": np.abs(rows) / np.abs(rows).sum(1, keepdims=True)}


def inputs(samples: int, classes: int, generator: np.random.Generator) -> dict[str, Any]:
    return {"inputs": torch.as_tensor(generator.normal(size=(samples, 2, 3)).astype(np.float32))}


def transition(samples: int, classes: int, generator: np.random.Generator) -> dict[str, Any]:
    off = generator.dirichlet(np.ones(classes), classes)
    np.fill_diagonal(off, 0)
    return {"transition": 0.5 * np.eye(classes) + 0.5 * off / off.sum(1, keepdims=True)}


def confusion(samples: int, classes: int, generator: np.random.Generator) -> dict[str, Any]:
    return {"confusion": 1 + generator.integers(0, 50, (classes, classes))}


def mapping(samples: int, classes: int, generator: np.random.Generator) -> dict[str, Any]:
    return {"mapping": {own: (own + 1) % classes for own in range(classes)}}


def nothing(samples: int, classes: int, generator: np.random.Generator) -> dict[str, Any]:
    return {}


# What each kind takes beside the labels. "class-map" maps every class here, so that its rate is the overall one.
EXTRAS: dict[str, Extras] = {
    "uniform": nothing,
    "pair": nothing,
    "class-map": mapping,
    "matrix": transition,
    "confusion": confusion,
    "feature-dependent": probabilities,
    "feature-dependent-released": probabilities,
    "locally-concentrated": inputs,
    "instance-dependent": inputs,
}
BY_CLASS = ("uniform", "pair", "class-map", "matrix", "confusion")  # exact counts, rounded down in each cell
RANKED = ("feature-dependent", "feature-dependent-released")  # exactly ⌊rate·n⌋ samples of the whole set


def make(name: str, label: Tensor, rate: float, seed: int, classes: int, **options: Any) -> Corruption:
    extras = EXTRAS[name](len(label), classes, np.random.default_rng(1000 + seed))
    found: Corruption = NOISES.load(name)(
        label, rate, np.random.default_rng(seed), classes=classes, **{**extras, **options}
    )
    return found


def test_every_noise_is_in_this_contract() -> None:
    assert set(EXTRAS) == set(NOISES)


@pytest.mark.parametrize("name", NOISES)
@given(
    rate=st.floats(0, 1),
    classes=st.integers(2, 7),
    each=st.integers(1, 40),
    lost=st.integers(0, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_noise_keeps_its_promises(name: str, rate: float, classes: int, each: int, lost: int, seed: int) -> None:
    label = torch.arange(classes).repeat(each)[lost:]  # classes of unequal size, some without samples
    if len(label) == 0:
        return
    before = label.clone()
    found, again = (make(name, label, rate, seed, classes) for _ in range(2))
    assert torch.equal(found.label, again.label)
    assert torch.equal(label, before), "the labels passed in are left alone"
    assert torch.equal(found.before, before)
    assert found.label.dtype == torch.int64
    assert found.label.shape == label.shape
    assert int(found.label.min()) >= 0
    assert int(found.label.max()) < classes
    for matrix in (found.nominal, found.realised):
        assert matrix.dtype == torch.float64
        assert matrix.shape == (classes, classes)
        assert torch.allclose(matrix.sum(1), torch.ones(classes, dtype=torch.float64))
        assert float(matrix.min()) >= 0
    assert found.rate == float((found.label != label).double().mean())


@pytest.mark.parametrize("name", BY_CLASS)
@given(rate=st.floats(0, 1), classes=st.integers(2, 7), each=st.integers(1, 40), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_every_cell_has_its_count_rounded_down(name: str, rate: float, classes: int, each: int, seed: int) -> None:
    label = torch.arange(classes).repeat(each)
    found = make(name, label, rate, seed, classes)
    for own in range(classes):
        for other in set(range(classes)) - {own}:
            moved = int(((label == own) & (found.label == other)).sum())
            assert moved == int(each * float(found.nominal[own, other]) + 1e-9)
    assert rate - classes / each <= found.rate <= rate + 1e-9


@pytest.mark.parametrize("name", RANKED)
@given(rate=st.floats(0, 1), classes=st.integers(2, 7), each=st.integers(1, 40), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_exactly_the_share_asked_for_changes(name: str, rate: float, classes: int, each: int, seed: int) -> None:
    label = torch.arange(classes).repeat(each)
    found = make(name, label, rate, seed, classes)
    assert int((found.label != label).sum()) == int(rate * len(label) + 1e-9)
    assert torch.equal(found.nominal, found.realised)


@pytest.mark.parametrize("name", ["pair", "class-map", "matrix", "confusion"])
def test_drawn_labels_come_out_near_the_rate(name: str) -> None:
    label = torch.arange(5).repeat(4000)
    found = make(name, label, 0.3, 0, 5, exact=False)
    assert found.rate == pytest.approx(0.3, abs=0.01)
    assert found.rate != 0.3, "drawn, not counted"
    assert torch.allclose(found.realised, found.nominal, atol=0.03)


@pytest.mark.parametrize("name", NOISES)
def test_rate_zero_changes_nothing(name: str) -> None:
    label = torch.arange(5).repeat(20)
    found = make(name, label, 0.0, 0, 5)
    assert torch.equal(found.label, label)
    assert found.rate == 0
    assert torch.equal(found.realised, torch.eye(5, dtype=torch.float64))


@pytest.mark.parametrize("name", NOISES)
def test_another_seed_gives_other_labels(name: str) -> None:
    label = torch.arange(5).repeat(40)
    assert not torch.equal(make(name, label, 0.4, 0, 5).label, make(name, label, 0.4, 1, 5).label)


@pytest.mark.parametrize("name", NOISES)
def test_an_impossible_rate_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"a noise rate of 1.5 is not possible; it is a share between 0 and 1"):
        make(name, torch.tensor([0, 1]), 1.5, 0, 2)


@pytest.mark.parametrize("name", [name for name in NOISES if name != "matrix"])
def test_a_missing_rate_is_asked_for(name: str) -> None:
    with pytest.raises(ValueError, match="this noise needs a rate"):
        make(name, torch.tensor([0, 1]), None, 0, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NOISES)
def test_one_class_alone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="needs another class to go to, and there is 1"):
        NOISES.load(name)(torch.zeros(4, dtype=torch.int64), 0.5, np.random.default_rng(0), classes=1)


@pytest.mark.parametrize("name", [name for name in NOISES if NOISES[name].needs])
def test_what_is_missing_is_asked_for_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=rf"pass .*{NOISES[name].needs[0]}"):
        NOISES.load(name)(torch.arange(4), 0.5, np.random.default_rng(0), classes=4)


@pytest.mark.parametrize("name", NOISES)
def test_labels_that_are_no_class_numbers_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"there is the label -1 \(1 such samples\); allowed: 0 to 2"):
        make(name, torch.tensor([0, -1, 2]), 0.5, 0, 3)
    with pytest.raises(
        TypeError, match=r"the labels are torch.float32 of shape \(3,\); a flat tensor of int64 is needed"
    ):
        make(name, torch.tensor([0.0, 1.0, 2.0]), 0.5, 0, 3)

"""Noise that depends on the class alone: published counts, conventions, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mslg.noise.class_map import CIFAR10, class_map
from mslg.noise.confusion import confusion
from mslg.noise.matrix import matrix
from mslg.noise.pair import pair
from mslg.noise.uniform import CONVENTIONS, uniform
from mslg.registry import UnknownName

CIFAR_LABELS = torch.arange(10).repeat_interleave(5000)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def counts(before: Tensor, after: Tensor, classes: int) -> Tensor:
    found = torch.zeros(classes, classes, dtype=torch.int64)
    for own in range(classes):
        for other in range(classes):
            found[own, other] = ((before == own) & (after == other)).sum()
    return found


def test_uniform_noise_has_the_published_counts() -> None:
    found = uniform(CIFAR_LABELS, 0.35, rng(), classes=10)
    table = counts(CIFAR_LABELS, found.label, 10)
    off = table[~torch.eye(10, dtype=torch.bool)]
    assert off.unique().tolist() == [194]
    assert table.diagonal().unique().tolist() == [3254]
    assert found.rate == pytest.approx(0.3492, abs=1e-12)
    for rate, realised in {0.2: 0.1998, 0.4: 0.3996, 0.6: 0.5994, 0.8: 0.7992}.items():
        assert uniform(CIFAR_LABELS, rate, rng(), classes=10).rate == pytest.approx(realised, abs=1e-12)


def test_filling_up_reaches_the_rate_in_small_classes() -> None:
    label = torch.arange(10).repeat(50)
    found = uniform(label, 0.4, rng(), classes=10, fill=True)
    assert found.rate == 0.4
    assert (found.label != label).view(50, 10).sum(0).tolist() == [20] * 10


@pytest.mark.parametrize("rate", [0.2, 0.8])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_each_convention_realises_its_rate(convention: str, rate: float) -> None:
    found = uniform(CIFAR_LABELS, rate, rng(), classes=10, convention=convention)
    expected = rate if convention.endswith("excluding") else rate * 9 / 10
    assert found.rate == pytest.approx(expected, abs=0.006)
    assert torch.allclose(found.realised, found.nominal, atol=0.03)
    assert float(1 - found.nominal.diagonal().mean()) == pytest.approx(expected)


def test_including_the_own_class_redraws_an_exact_number_of_samples() -> None:
    label = torch.zeros(1001, dtype=torch.int64)
    # Of 100 classes a redrawn label is rarely the old one, so the most changes seen are just under ⌈rate·n⌉ = 501.
    most = max(
        int(uniform(label, 0.5, rng(seed), classes=100, convention="exact-including").label.count_nonzero())
        for seed in range(200)
    )
    assert 497 <= most <= 501


def test_an_unknown_convention_gets_a_guess() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'exact-including'"):
        uniform(CIFAR_LABELS, 0.2, rng(), classes=10, convention="exact_including")


def test_filling_up_belongs_to_exact_counts_of_other_classes() -> None:
    with pytest.raises(ValueError, match="fill=True requires the convention exact-excluding, not bernoulli-ex"):
        uniform(CIFAR_LABELS, 0.2, rng(), classes=10, fill=True, convention="bernoulli-excluding")


def test_pair_noise_goes_to_the_next_class() -> None:
    label = torch.arange(4).repeat(25)
    found = pair(label, 0.4, rng(), classes=4)
    moved = found.label != label
    assert int(moved.sum()) == 40
    assert torch.equal(found.label[moved], (label[moved] + 1) % 4)


def test_the_map_of_cifar10_touches_five_classes_and_half_the_rate_overall() -> None:
    found = class_map(CIFAR_LABELS, 0.4, rng(), classes=10)
    table = counts(CIFAR_LABELS, found.label, 10)
    for own in range(10):
        expected = torch.zeros(10, dtype=torch.int64)
        expected[own] = 5000
        if own in CIFAR10:
            expected[own], expected[CIFAR10[own]] = 3000, 2000
        assert torch.equal(table[own], expected)
    assert found.rate == pytest.approx(0.2, abs=1e-12)


def test_any_mapping_may_be_given_also_with_names_as_a_file_writes_them() -> None:
    label = torch.arange(3).repeat(10)
    found = class_map(label, 0.5, rng(), classes=3, mapping={"0": 2})
    assert counts(label, found.label, 3).tolist() == [[5, 0, 5], [0, 10, 0], [0, 0, 10]]


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (None, "that of CIFAR-10, and there are 3 classes; pass mapping"),
        ({0: 0}, "has 0 → 0; each class must go to another one, both numbers from 0 to 2"),
        ({0: 3, 1: 2}, "has 0 → 3; each class"),
        ({"cat": 1}, "has cat → 1; use class numbers from 0 to 2"),
        ({0: 1.5}, "has 0 → 1.5; use class numbers"),
        ([1, 2], "pass class numbers as a dict"),
    ],
)
def test_a_bad_mapping_is_refused(mapping: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        class_map(torch.arange(3), 0.5, rng(), classes=3, mapping=mapping)


TRANSITION = [[0.9, 0.1, 0.0], [0.0, 0.7, 0.3], [0.2, 0.0, 0.8]]


def test_a_matrix_without_a_rate_is_taken_as_it_is() -> None:
    label = torch.arange(3).repeat_interleave(100)
    found = matrix(label, None, rng(), classes=3, transition=TRANSITION)
    assert counts(label, found.label, 3).tolist() == [[90, 10, 0], [0, 70, 30], [20, 0, 80]]


def test_a_matrix_with_a_rate_is_scaled_to_it() -> None:
    label = torch.arange(3).repeat_interleave(torch.tensor([1000, 500, 500]))
    found = matrix(label, 0.35, rng(), classes=3, transition=np.array(TRANSITION))
    # 0.1·1/2 + 0.3·1/4 + 0.2·1/4 = 0.175, so everything off the diagonal is doubled.
    assert counts(label, found.label, 3).tolist() == [[800, 200, 0], [0, 200, 300], [200, 0, 300]]
    assert found.rate == pytest.approx(0.35)


@pytest.mark.parametrize(
    ("transition", "rate", "message"),
    [
        ([[1, 0], [0, 1]], 0.5, r"has the shape \(2, 2\); 3 classes need \(3, 3\)"),
        ([[0.9, 0.2, 0], [0, 1, 0], [0, 0, 1]], 0.5, "row 0 of the transition matrix sums to 1.1"),
        ([[1.1, -0.1, 0], [0, 1, 0], [0, 0, 1]], 0.5, "has the entry -0.1; no entry may be negative"),
        (
            [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]],
            0.5,
            "would empty class 0 of this transition matrix; it allows at most 0.333",
        ),
        (np.eye(3), 0.5, "changes no label here"),
        ([[float("nan")] * 3] * 3, 0.5, "NaN or infinite"),
        ("nowhere.npy", 0.5, "there is no file nowhere.npy to read the transition matrix from"),
    ],
)
def test_a_bad_matrix_is_refused(transition: Any, rate: float, message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        matrix(torch.arange(3).repeat(10), rate, rng(), classes=3, transition=transition)


def test_a_matrix_may_be_a_file(tmp_path: Path) -> None:
    label = torch.arange(3).repeat(100)
    np.save(tmp_path / "t.npy", TRANSITION)
    np.savetxt(tmp_path / "t.csv", TRANSITION, delimiter=",")
    expected = matrix(label, None, rng(), classes=3, transition=TRANSITION).label
    for name in ("t.npy", "t.csv"):
        assert torch.equal(matrix(label, None, rng(), classes=3, transition=tmp_path / name).label, expected)


def test_files_with_objects_or_several_arrays_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "several.npz", a=np.eye(2), b=np.eye(2))
    for name, message in {
        "objects.npy": "cannot be read as the transition",
        "several.npz": r"several arrays \(a, b\)",
    }.items():
        with pytest.raises(ValueError, match=message):
            matrix(torch.arange(2), None, rng(), classes=2, transition=str(tmp_path / name))


def test_confusions_are_normalised_to_the_rate_and_classes_without_mistakes_stay_clean() -> None:
    label = torch.arange(3).repeat_interleave(100)
    found = confusion(label, 0.4, rng(), classes=3, confusion=[[50, 3, 1], [0, 9, 0], [7, 7, 0]])
    assert counts(label, found.label, 3).tolist() == [[60, 30, 10], [0, 100, 0], [20, 20, 60]]
    assert found.nominal[1].tolist() == [0, 1, 0]

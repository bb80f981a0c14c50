"""One contract for every noise: registering is being tested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mslg.noise import NOISES
from mslg.noise.corruption import Corruption, check
from mslg.testing import NOISE_CHECKS, check_noise


@pytest.mark.parametrize("contract", NOISE_CHECKS)
@pytest.mark.parametrize("name", NOISES.built_in)
def test_contract(name: str, contract: Callable[..., None]) -> None:
    contract(NOISES.load(name))


@pytest.mark.parametrize("name", [name for name in NOISES.built_in if NOISES[name].needs])
def test_what_is_missing_is_asked_for_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=rf"pass .*{NOISES[name].needs[0]}"):
        NOISES.load(name)(torch.arange(4), 0.5, np.random.default_rng(0), classes=4)


def shifted(label: Tensor, rate: Any, generator: np.random.Generator, *, classes: int) -> Corruption:
    """Every label moves, whatever the rate."""
    check(label, rate, classes)
    return Corruption((label + 1) % classes, label, torch.eye(classes, dtype=torch.float64))


def unchecked(label: Tensor, rate: float, generator: np.random.Generator, *, classes: int) -> Corruption:
    wrong = torch.as_tensor(generator.random(len(label)) < rate)
    return Corruption(torch.where(wrong, (label + 1) % classes, label), label, torch.eye(classes).double())


def in_place(label: Tensor, rate: float, generator: np.random.Generator, *, classes: int) -> Corruption:
    before = label.clone()
    label[: int(rate * len(label))] = 0
    return Corruption(label, before, torch.eye(classes).double())


@pytest.mark.parametrize(
    ("noise", "contract"),
    [
        (shifted, "at rate 0 no label may change"),
        (unchecked, r"a rate of 1.5 must raise .* call mslg.noise.corruption.check"),
        (in_place, "the labels passed in must not be changed|the same generator must give"),
        (lambda label, rate, generator, *, classes: label, "a noise must return a Corruption, not a Tensor"),
    ],
)
def test_a_broken_contract_is_stated(noise: Callable[..., Any], contract: str) -> None:
    with pytest.raises(AssertionError, match=contract):
        check_noise(noise)

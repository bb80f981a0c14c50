"""The contract of a noise: a function of labels, rate and generator that returns a `Corruption`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..noise.corruption import Corruption

Noise = Callable[..., Corruption]


def check_noise(noise: Noise) -> None:
    """Check a noise against the contract that every built-in one fulfils.

    Args:
        noise: A function `noise(label, rate, generator, *, classes, …) -> Corruption`. Of its own settings, those
            called inputs, probabilities, transition, confusion and mapping are filled in; bind others with
            `functools.partial`.

    Raises:
        AssertionError: The contract that is broken.
    """
    for check in NOISE_CHECKS:
        check(noise)


def apply(noise: Noise, label: Tensor, rate: float | None, seed: int, classes: int, **settings: Any) -> Corruption:
    """The noise on these labels, with made-up inputs or matrices where it takes some."""
    filled = _filled_in(noise, len(label), classes, np.random.default_rng(1000 + seed))
    return noise(label, rate, np.random.default_rng(seed), classes=classes, **{**filled, **settings})


def check_corruption_is_well_formed(noise: Noise) -> None:
    """Whatever the rate and the class sizes: labels in range, matrices whose rows sum to 1, the true rate."""
    random = np.random.default_rng(0)
    rates = [0.0, 1.0, *random.random(28)]
    for seed, rate in enumerate(rates):
        classes, per_class, missing = int(random.integers(2, 8)), int(random.integers(1, 41)), int(random.integers(4))
        label = torch.arange(classes).repeat(per_class)[missing:]  # classes of unequal size, some without samples
        if len(label) == 0:
            continue
        before, case = label.clone(), f"(rate {rate:.3g}, {classes} classes, {len(label)} samples)"
        found, again = (apply(noise, label, rate, seed, classes) for _ in range(2))
        assert isinstance(found, Corruption), f"a noise must return a Corruption, not a {type(found).__name__}"
        assert torch.equal(found.label, again.label), f"the same generator must give the same labels {case}"
        assert torch.equal(label, before), f"the labels passed in must not be changed {case}"
        assert torch.equal(found.before, before), f"Corruption.before must be the labels passed in {case}"
        assert found.label.dtype == torch.int64, f"labels must be int64, not {found.label.dtype}"
        assert found.label.shape == label.shape, f"there must be one label per sample {case}"
        inside = int(found.label.min()) >= 0 and int(found.label.max()) < classes
        assert inside, f"labels must be from 0 to {classes - 1} {case}"
        for name, matrix in (("nominal", found.nominal), ("realised", found.realised)):
            assert matrix.dtype == torch.float64, f"Corruption.{name} must be float64, not {matrix.dtype}"
            assert matrix.shape == (classes, classes), f"Corruption.{name} must be (classes, classes) {case}"
            ones = torch.ones(classes, dtype=torch.float64)
            stochastic = torch.allclose(matrix.sum(1), ones) and float(matrix.min()) >= 0
            assert stochastic, f"the rows of Corruption.{name} must be probabilities {case}"


def check_rate_zero_changes_nothing(noise: Noise) -> None:
    """At rate 0 every label stays."""
    label = torch.arange(5).repeat(20)
    assert torch.equal(apply(noise, label, 0.0, 0, 5).label, label), "at rate 0 no label may change"


def check_rate_is_met(noise: Noise) -> None:
    """Roughly the fraction asked for changes: a few percent more or less, by rounding and chance."""
    label = torch.arange(5).repeat(200)
    rate = float((apply(noise, label, 0.4, 0, 5).label != label).double().mean())
    assert abs(rate - 0.4) < 0.1, f"at rate 0.4 a fraction of {rate:.3g} of the labels changes"


def check_another_seed_gives_other_labels(noise: Noise) -> None:
    """The generator decides which labels change."""
    label = torch.arange(5).repeat(40)
    first, second = (apply(noise, label, 0.4, seed, 5).label for seed in (0, 1))
    assert not torch.equal(first, second), "another generator must give other labels"


def check_impossible_arguments_are_refused(noise: Noise) -> None:
    """A rate outside 0 to 1, fewer than two classes, and labels that are not class numbers raise an error."""
    label = torch.arange(3)
    _expect_error(noise, "a rate of 1.5", label, 1.5, 3)
    _expect_error(noise, "a rate of −0.1", label, -0.1, 3)
    _expect_error(noise, "a single class", torch.zeros(4, dtype=torch.int64), 0.5, 1)
    _expect_error(noise, "the label −1", torch.tensor([0, -1, 2]), 0.5, 3)
    _expect_error(noise, "labels of type float32", torch.tensor([0.0, 1.0, 2.0]), 0.5, 3)


NOISE_CHECKS: tuple[Callable[[Noise], None], ...] = (
    check_corruption_is_well_formed,
    check_rate_zero_changes_nothing,
    check_rate_is_met,
    check_another_seed_gives_other_labels,
    check_impossible_arguments_are_refused,
)


def _expect_error(noise: Noise, what: str, label: Tensor, rate: float, classes: int) -> None:
    try:
        apply(noise, label, rate, 0, classes)
    except (ValueError, TypeError):
        return
    contract = "must raise a ValueError or TypeError: call mslg.noise.corruption.check(label, rate, classes) first"
    raise AssertionError(f"{what} {contract}")


def _filled_in(noise: Noise, samples: int, classes: int, random: np.random.Generator) -> dict[str, Any]:
    """Made-up values for those settings that a noise takes and that have no value yet."""
    parameters = inspect.signature(noise).parameters
    wanted = {name for name, parameter in parameters.items() if parameter.default in (None, parameter.empty)}
    if "probabilities" in wanted:  # then no inputs: a noise that takes both would train a network on them
        # Rounding makes ties and zeros, also for the largest.
        rows = random.dirichlet(np.full(classes, 0.3), samples).round(1)
        rows[:, 0] += 1 - rows.sum(1)
        return {"probabilities": np.abs(rows) / np.abs(rows).sum(1, keepdims=True)}
    if "inputs" in wanted:
        return {"inputs": torch.as_tensor(random.normal(size=(samples, 2, 3)).astype(np.float32))}
    if "transition" in wanted:
        off = random.dirichlet(np.ones(classes), classes)
        np.fill_diagonal(off, 0)
        return {"transition": 0.5 * np.eye(classes) + 0.5 * off / off.sum(1, keepdims=True)} if classes > 1 else {}
    if "confusion" in wanted:
        return {"confusion": 1 + random.integers(0, 50, (classes, classes))}
    if "mapping" in wanted:
        return {"mapping": {own: (own + 1) % classes for own in range(classes)}}
    return {}

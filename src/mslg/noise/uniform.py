"""Uniform noise: a wrong label is any other class with equal probability.

The same "rate" means different things in different papers, so the convention has a name: counts are exact or every
sample is drawn independently (Bernoulli), and a new label is drawn from the other classes (excluding its own) or from
all classes (including it, so that only rate·(C−1)/C of the labels actually change).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..registry import expect_name
from .corruption import Corruption, check
from .sampling import corrupt_by

CONVENTIONS = ("exact-excluding", "bernoulli-excluding", "exact-including", "bernoulli-including")


def uniform(
    label: Tensor,
    rate: float,
    generator: np.random.Generator,
    *,
    classes: int,
    convention: str = "exact-excluding",
    fill: bool = False,
) -> Corruption:
    """Move labels to all other classes. By default, as in the paper, ⌊n_i·rate/(C−1)⌋ samples of class i go to each
    class j ≠ i.

    Args:
        label: (samples,) int64 labels to corrupt.
        rate: the share of labels to change, from 0 to 1.
        generator: of all random draws.
        classes: the number of classes.
        convention: what the rate means, one of CONVENTIONS.
        fill: change round(n_i·rate) labels per class by sending the samples lost to rounding to random classes.

    Returns:
        The corrupted labels and the transition matrix.
    """
    check(label, rate, classes)
    expect_name("convention", convention, CONVENTIONS)
    if fill and convention != "exact-excluding":
        raise ValueError(f"fill=True requires the convention exact-excluding, not {convention}; remove one of them")
    counts, _, own = convention.partition("-")
    each = rate / (classes - 1) if own == "excluding" else rate / classes
    nominal = np.full((classes, classes), each)
    np.fill_diagonal(nominal, max(0.0, 1 - each * (classes - 1)))
    if convention == "exact-including":
        return Corruption(_redrawn(label, rate, generator, classes), label, torch.as_tensor(nominal))
    return corrupt_by(nominal, label, generator, exact=counts == "exact", fill=fill)


def _redrawn(label: Tensor, rate: float, generator: np.random.Generator, classes: int) -> Tensor:
    """⌈rate·n⌉ random samples of the whole set get any label, possibly their own."""
    given = label.numpy().copy()
    count = math.ceil(rate * len(given) - 1e-9)
    chosen = generator.permutation(len(given))[:count]
    given[chosen] = generator.integers(0, classes, size=count)
    return torch.as_tensor(given)

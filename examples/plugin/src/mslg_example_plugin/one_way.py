"""One-way noise: wrong labels always go up, to a class with a higher number (the last class goes to the first)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mslg.noise.corruption import Corruption, check


def one_way(label: Tensor, rate: float, generator: np.random.Generator, *, classes: int) -> Corruption:
    """Each label changes with probability `rate`, to a class drawn uniformly from those above its own."""
    check(label, rate, classes)
    nominal = np.triu(np.ones((classes, classes)), 1)
    nominal[-1, 0] = 1
    nominal = (1 - rate) * np.eye(classes) + rate * nominal / nominal.sum(1, keepdims=True)
    given = [generator.choice(classes, p=nominal[true]) for true in label.tolist()]
    return Corruption(torch.tensor(given, dtype=torch.int64), label, torch.as_tensor(nominal))

"""A small problem that every test can afford: four Gaussian blobs, some labels wrong."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import nn


class Blobs(NamedTuple):
    """Arrays as a user would have them."""

    x: np.ndarray
    given: np.ndarray
    true: np.ndarray
    clean_x: np.ndarray
    clean_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def blobs(samples: int = 240, clean: int = 24, classes: int = 4, rate: float = 0.3, seed: int = 0) -> Blobs:
    """Classes on a circle, `rate` of the training labels moved to another class."""
    random = np.random.default_rng(seed)
    angles = 2 * np.pi * np.arange(classes) / classes
    centres = 2.5 * np.stack([np.cos(angles), np.sin(angles)], 1)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % classes
        return (centres[labels] + random.normal(size=(count, 2))).astype(np.float32), labels

    x, true = draw(samples)
    wrong = random.random(samples) < rate
    given = np.where(wrong, (true + random.integers(1, classes, samples)) % classes, true)
    return Blobs(x, given, true, *draw(clean), *draw(samples))


def small_network(classes: int = 4) -> nn.Module:
    """Two layers with dropout and batch norm, so that random masks and running statistics are part of every test."""
    return nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, classes))


def same_state(left: object, right: object) -> bool:
    """Whether two nested states are equal to the bit."""
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, dict):
        return (
            isinstance(right, dict) and left.keys() == right.keys() and all(same_state(left[k], right[k]) for k in left)
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same_state, left, right))  # type: ignore[arg-type]
    return left == right

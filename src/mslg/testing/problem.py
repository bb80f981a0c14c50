"""A problem small enough for every check: four Gaussian blobs with some labels wrong, and a network of two layers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ..data.make_splits import make_splits
from ..data.samples import Samples
from ..data.source import make_source
from ..data.splits import Splits
from ..training.evaluation import Evaluation
from ..training.method import Method, Task
from ..training.schedules import Steps

EPOCHS = 9  # enough for every stage of every method
STEPS = 6  # per epoch
CLASSES = 4
LEARNING_RATE = 0.05

Array = np.ndarray[Any, np.dtype[Any]]


class Blobs(NamedTuple):
    """Arrays as a user would have them."""

    x: Array
    given: Array
    true: Array
    clean_x: Array
    clean_y: Array
    test_x: Array
    test_y: Array


def blobs(samples: int = 240, clean: int = 24, classes: int = CLASSES, rate: float = 0.3, seed: int = 0) -> Blobs:
    """Classes on a circle; a fraction `rate` of the training labels is moved to another class."""
    random = np.random.default_rng(seed)
    angles = 2 * np.pi * np.arange(classes) / classes
    centres = 2.5 * np.stack([np.cos(angles), np.sin(angles)], 1)

    def draw(count: int) -> tuple[Array, Array]:
        labels = np.arange(count) % classes
        return (centres[labels] + random.normal(size=(count, 2))).astype(np.float32), labels

    x, true = draw(samples)
    wrong = random.random(samples) < rate
    given = np.where(wrong, (true + random.integers(1, classes, samples)) % classes, true)
    return Blobs(x, given, true, *draw(clean), *draw(samples))


def small_network(classes: int = CLASSES) -> nn.Module:
    """Two layers with dropout and batch norm, so that random masks and running statistics are part of every check."""
    return nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, classes))


class Problem(NamedTuple):
    """A method on the blobs, the data it trains on, and what measures it."""

    method: Method
    data: Splits
    evaluation: Evaluation


def problem(method: type[Method], **settings: Any) -> Problem:
    """The method with these settings on the blobs; noise rate and transition matrix are known, 24 samples are clean."""
    data = blobs(samples=STEPS * 24)
    noisy = make_source(data.x, data.given, true_labels=data.true)
    splits = make_splits(noisy, make_source(data.clean_x, data.clean_y), batch_size=24, clean_batch_size=8, seed=1)
    task = Task(
        noisy.label,
        CLASSES,
        small_network,
        EPOCHS,
        24,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=0.9, weight_decay=1e-4),
        schedule=Steps({0.5: 0.1}),
        noise_rate=0.3,
        transition=0.7 * torch.eye(CLASSES) + 0.1 * (torch.ones(CLASSES, CLASSES) - torch.eye(CLASSES)),
        seed=1,
    )
    test = make_source(data.test_x, data.test_y)
    evaluation = Evaluation(splits, Samples(test.store, torch.arange(len(test)), test.label), noisy.true_label)
    return Problem(method(task, **settings), splits, evaluation)


def same_state(left: object, right: object) -> bool:
    """Whether two nested states are equal to the bit."""
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, dict):
        return (
            isinstance(right, dict) and left.keys() == right.keys() and all(same_state(left[k], right[k]) for k in left)
        )
    if isinstance(left, list | tuple):
        return isinstance(right, list | tuple) and len(left) == len(right) and all(map(same_state, left, right))
    return left == right

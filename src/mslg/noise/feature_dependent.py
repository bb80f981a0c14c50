"""Feature-dependent noise: the samples that a network finds hardest get the class it takes them for.

Algan & Ulusoy: a teacher is trained on true labels, a student is distilled from it, and the labels of the samples
nearest the student's decision boundary are changed to the class on the other side. Here the ranking is by the margin
between log-probabilities in float64, with ties broken by the generator; and the student that judges a sample was
trained without it (cross-fitting), because a network is sure of everything it has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.batch import Inputs
from .arguments import Array, read_probabilities
from .corruption import Corruption, check, transition_of, whole
from .teacher import Distillation, cached


def feature_dependent(
    label: Tensor,
    rate: float,
    generator: np.random.Generator,
    *,
    classes: int,
    probabilities: Any = None,
    inputs: Inputs = None,
    network: Callable[[], nn.Module] | None = None,
    folds: int = 2,
    epochs: int = 15,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    temperature: float = 16.0,
    hard_share: float = 0.1,
    teacher_seed: int = 0,
    cache: str | Path | None = None,
    device: str = "cpu",
) -> Corruption:
    """⌊rate·n⌋ samples change to their counter class, the most probable one that is not their label.

    First those that the student takes for another class, most decided ones first, then those nearest the boundary. The
    probabilities are given, or those of students trained on the inputs with networks from the factory; `cache` keeps
    them in an .npz. The noise depends on the generator only through ties; other students come from `teacher_seed`.
    """
    check(label, rate, classes)
    distillation = Distillation(
        folds=folds,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        temperature=temperature,
        hard_share=hard_share,
        seed=teacher_seed,
    )
    if probabilities is None:
        if inputs is None or network is None:
            raise ValueError(
                "feature-dependent noise needs a network's view of the samples: pass probabilities, an array of shape "
                "(samples, classes), or both inputs and network, a factory of networks to train on them"
            )
        probabilities = cached(cache, distillation, network, inputs, label, classes, torch.device(device))
    elif any(value is not None for value in (inputs, network, cache)) or distillation != Distillation():
        raise ValueError(
            "with probabilities no network is trained; leave them out, or leave out inputs, network, cache and the "
            "settings of training"
        )
    known = read_probabilities(probabilities, len(label), classes)
    margin, counter = margins(known, label.numpy(), generator)
    # Sorted by margin, the largest first, and at random where margins are equal.
    order = np.lexsort((generator.random(len(margin)), -margin))
    chosen = order[: whole(rate * len(label))]
    given = label.numpy().copy()
    given[chosen] = counter[chosen]
    after = torch.as_tensor(given)
    return Corruption(after, label, transition_of(label, after, classes))


def margins(probabilities: Array, label: Array, generator: np.random.Generator) -> tuple[Array, Array]:
    """log q(counter) − log q(label) in float64, and the counter class: the most probable one that is not the label.

    It is positive where the network takes the sample for another class. Classes that tie for counter are drawn among.
    """
    rows = np.arange(len(label))
    with np.errstate(divide="ignore"):
        logs = np.log(probabilities.astype(np.float64))
    own = logs[rows, label]
    others = logs.copy()
    others[rows, label] = -np.inf
    best = others.max(1)
    # A random number for each class decides ties; the label itself is out even when all others have probability 0.
    lots = np.where(others == best[:, None], generator.random(logs.shape), -1)
    lots[rows, label] = -2
    # Both can be −∞ only in a row of zeros, which is no probability.
    return best - own, lots.argmax(1)

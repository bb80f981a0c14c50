"""Feature-dependent noise: the samples that are hardest for a network get the class that it confuses them with.

Algan & Ulusoy: a teacher is trained on true labels, a student is distilled from it, and the labels of the samples
nearest the student's decision boundary are changed to the class on the other side. Here samples are ranked by the
margin between log-probabilities in float64, with ties broken by the generator; and each sample is ranked by a student
that was trained without it (cross-fitting), because a network is overconfident on its training samples.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.batch import Inputs
from .corruption import Corruption, check, floor_count, transition_of
from .read_arrays import Array, read_probabilities
from .teacher import Distillation, cached_probabilities


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
    """Change ⌊rate·n⌋ labels to the counter class, the most probable class that is not the label: first of samples that
    the student misclassifies, by decreasing margin, then of those nearest the decision boundary.

    Args:
        label: (samples,) int64 labels to corrupt.
        rate: the share of labels to change, from 0 to 1.
        generator: breaks ties; for other students, change `teacher_seed`.
        classes: the number of classes.
        probabilities: (samples, classes) predictions, as an array or the path of a file; None to train students.
        inputs: of all samples, to train students on.
        network: a factory of networks for teachers and students.
        folds: for cross-fitting.
        epochs, batch_size, learning_rate: of teachers and students.
        temperature: of the distillation.
        hard_share: the weight of the labels in the student's loss.
        teacher_seed: of the training of teachers and students.
        cache: an .npz file to keep the students' probabilities in.
        device: to train on.

    Returns:
        The corrupted labels and the transition matrix.
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
                "feature-dependent noise needs predictions for the samples: pass probabilities, an array of shape "
                "(samples, classes), or both inputs and network, a factory of networks to train on them"
            )
        probabilities = cached_probabilities(cache, distillation, network, inputs, label, classes, torch.device(device))
    elif any(value is not None for value in (inputs, network, cache)) or distillation != Distillation():
        raise ValueError(
            "no network is trained if probabilities are passed; remove them, or remove inputs, network, cache and the "
            "training settings"
        )
    known = read_probabilities(probabilities, len(label), classes)
    margin, counter = margins(known, label.numpy(), generator)
    # By decreasing margin, in random order where margins are equal.
    order = np.lexsort((generator.random(len(margin)), -margin))
    chosen = order[: floor_count(rate * len(label))]
    given = label.numpy().copy()
    given[chosen] = counter[chosen]
    after = torch.as_tensor(given)
    return Corruption(after, label, transition_of(label, after, classes))


def margins(probabilities: Array, label: Array, generator: np.random.Generator) -> tuple[Array, Array]:
    """log q(counter) − log q(label) in float64, and the counter class: the most probable one that is not the label.

    The margin is positive where the network misclassifies the sample. Ties between counter classes are broken randomly.
    """
    rows = np.arange(len(label))
    with np.errstate(divide="ignore"):
        logs = np.log(probabilities.astype(np.float64))
    own = logs[rows, label]
    others = logs.copy()
    others[rows, label] = -np.inf
    best = others.max(1)
    # A random number per class breaks ties; the label itself is excluded even if all others have probability 0.
    draws = np.where(others == best[:, None], generator.random(logs.shape), -1)
    draws[rows, label] = -2
    return best - own, draws.argmax(1)  # never −∞ − −∞: a row of probabilities is not all zero

"""Feature-dependent noise as published, with the flaw of the file it was made from.

The noise was computed from a released file of "student logits" for CIFAR-10. Its entries are not logits: they all lie
between 1/(e+9) = 0.0853 and e/(e+9) = 0.2320, the range of a softmax taken of values that were already probabilities.
The second softmax compresses small probabilities until float32 cannot distinguish them: in two thirds of the samples
several classes tie exactly for second place, in most of these all nine. The released program moves a sample to its
second class, and its sorting mostly puts the last of equal values first. So ties go to the class with the highest
number: at 80 %, half of all wrong labels are "truck", an eighth are "ship", and no class keeps its own label as the
most frequent one. Samples are also ranked by their second-largest probability, with the same ties.

Results on this noise can be compared with the published ones and with nothing else; for the noise as it was described
use `feature-dependent`. The order of ties is fixed here (a stable sort, the last of equals wins); the released program
left it to the version of its sorting routine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .corruption import Corruption, check, floor_count, transition_of
from .read_arrays import Array, read_probabilities


def feature_dependent_released(
    label: Tensor, rate: float, generator: np.random.Generator, *, classes: int, probabilities: Any = None
) -> Corruption:
    """Change ⌊rate·n⌋ labels: first of misclassified samples, to the most probable class; then of samples with the
    largest second probability, to their second class, or to any other class where that probability is 0.

    Args:
        label: (samples,) int64 labels to corrupt.
        rate: the share of labels to change, from 0 to 1.
        generator: of all random draws.
        classes: the number of classes.
        probabilities: (samples, classes) array, or the path of the released .npy file, in the order of the labels.

    Returns:
        The corrupted labels and the transition matrix.
    """
    check(label, rate, classes)
    if probabilities is None:
        raise ValueError(
            "feature-dependent-released needs the released student probabilities: pass probabilities, an array of "
            "shape (samples, classes) or the path of the .npy file, in the order of the labels"
        )
    # Not converted to another dtype: this noise depends on the ties of float32.
    known = read_probabilities(probabilities, len(label), classes)
    true = label.numpy()
    given = true.copy()
    order = known.argsort(1, kind="stable")
    first, second = order[:, -1], order[:, -2]
    rows = np.arange(len(true))
    count = floor_count(rate * len(true))
    mistaken = np.flatnonzero(first != true)
    chosen = mistaken[_largest(known[mistaken, first[mistaken]], count)]
    given[chosen] = first[chosen]
    if count > len(mistaken):
        rest = np.flatnonzero(first == true)
        runner_up = known[rows, second][rest]
        chosen = rest[_largest(runner_up, count - len(mistaken))]
        given[chosen] = second[chosen]
        impossible = chosen[known[chosen, second[chosen]] == 0]
        given[impossible] = (true[impossible] + generator.integers(1, classes, size=len(impossible))) % classes
    after = torch.as_tensor(given)
    return Corruption(after, label, transition_of(label, after, classes))


def student_probabilities(released: Array) -> Array:
    """The student's probabilities, in float64, from the released file: the logarithm undoes the second softmax.

    log softmax(s) is s minus a constant, and s sums to 1, which gives the constant. Where s is below the precision of
    the file, rounding can make it slightly negative: it is clipped to 0. Ties in the file stay ties.
    """
    logs = np.log(released.astype(np.float64))
    recovered = np.clip(logs - logs.mean(1, keepdims=True) + 1 / released.shape[1], 0, None)
    scaled: Array = recovered / recovered.sum(1, keepdims=True)
    return scaled


def _largest(values: Array, count: int) -> Array:
    """Positions of the largest values; of equal values, the last come first."""
    return values.argsort(kind="stable")[::-1][:count]

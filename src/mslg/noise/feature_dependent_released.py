"""Feature-dependent noise as it was published, with the flaw of the file that it was made from.

The noise was computed from a released file of "student logits" for CIFAR-10. Its entries are no logits: they all lie
between 1/(e+9) = 0.0853 and e/(e+9) = 0.2320, the range of a softmax taken of values that were already probabilities.
The second softmax squeezes small probabilities together until float32 cannot tell them apart: in two thirds of the
samples several classes tie exactly for second place, in most of these all nine. The generator sends a sample to its
second class, and its sorting mostly puts the last of equals first. So ties go to the class with the highest number: at
80 %, half of all wrong labels are "truck", an eighth are "ship", and in no class is its own label the most frequent
one. Samples, too, are ranked by their second-largest probability, where the same ties decide.

Results on this noise can be compared with the published ones and with nothing else; for the noise as it was described
use `feature-dependent`. The order of ties is fixed here (a stable sort, the last of equals wins); the released program
left it to the version of its sorting routine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .arguments import Array, read_probabilities
from .corruption import Corruption, check, transition_of, whole


def feature_dependent_released(
    label: Tensor, rate: float, generator: np.random.Generator, *, classes: int, probabilities: Any = None
) -> Corruption:
    """⌊rate·n⌋ samples change, first those whose most probable class is not their label: to that class.

    Then those with the largest second-largest probability: to their second class, or to any other class where that
    probability is 0.
    """
    check(label, rate, classes)
    if probabilities is None:
        raise ValueError(
            "feature-dependent-released needs the released student probabilities: pass probabilities, an array of "
            "shape (samples, classes) or the path of the .npy file, in the order of the labels"
        )
    # Not converted to another type: the ties of float32 are what this noise is about.
    known = read_probabilities(probabilities, len(label), classes)
    true = label.numpy()
    given = true.copy()
    order = known.argsort(1, kind="stable")
    first, second = order[:, -1], order[:, -2]
    rows = np.arange(len(true))
    count = whole(rate * len(true))
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
    the file, rounding can leave it a little below 0: it is then 0. Ties in the file stay ties.
    """
    logs = np.log(released.astype(np.float64))
    recovered = np.clip(logs - logs.mean(1, keepdims=True) + 1 / released.shape[1], 0, None)
    scaled: Array = recovered / recovered.sum(1, keepdims=True)
    return scaled


def _largest(values: Array, count: int) -> Array:
    """Positions of the largest values; of equal ones the last come first."""
    return values.argsort(kind="stable")[::-1][:count]

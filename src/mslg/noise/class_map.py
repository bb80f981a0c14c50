"""Class-map noise: some classes each lose a share of their samples to one similar class; the others stay clean."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index

import numpy as np
from torch import Tensor

from .corruption import Corruption, check
from .sampling import corrupt_by

# Truck to automobile, bird to airplane, deer to horse, and cat and dog to each other: five of the ten classes.
CIFAR10 = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}


def class_map(
    label: Tensor,
    rate: float,
    generator: np.random.Generator,
    *,
    classes: int,
    mapping: Mapping[int, int] | Mapping[str, int] | None = None,
    exact: bool = True,
) -> Corruption:
    """Move ⌊n_i·rate⌋ samples of each mapped class to the class it is mapped to.

    Args:
        label: (samples,) int64 labels to corrupt.
        rate: the share of labels to change in the mapped classes; overall, half of it with the map of CIFAR-10.
        generator: of all random draws.
        classes: the number of classes.
        mapping: from class numbers to class numbers; that of CIFAR-10 by default.
        exact: whether counts are exact; otherwise each sample is drawn independently.

    Returns:
        The corrupted labels and the transition matrix.
    """
    check(label, rate, classes)
    if mapping is None and classes != 10:
        raise ValueError(
            f"the built-in class map is that of CIFAR-10, and there are {classes} classes; "
            "pass mapping, such as {0: 1, 1: 0} (on the command line --set mapping='{0 = 1, 1 = 0}')"
        )
    nominal = np.eye(classes)
    for own, other in _checked(CIFAR10 if mapping is None else mapping, classes).items():
        nominal[own, own], nominal[own, other] = 1 - rate, rate
    return corrupt_by(nominal, label, generator, exact=exact)


def _checked(mapping: Mapping[int, int] | Mapping[str, int], classes: int) -> dict[int, int]:
    if not isinstance(mapping, Mapping):
        raise TypeError(f"the mapping is {mapping!r}; pass class numbers as a dict, such as {{0: 1, 1: 0}}")
    pairs = {}
    for own, other in mapping.items():
        try:
            pairs[int(own)] = index(other)
        except (TypeError, ValueError):
            raise ValueError(f"the mapping has {own} → {other}; use class numbers from 0 to {classes - 1}") from None
    wrong = [
        f"{own} → {other}" for own, other in pairs.items() if not {own, other} <= set(range(classes)) or own == other
    ]
    if wrong:
        raise ValueError(
            f"the mapping has {', '.join(wrong)}; each class must go to another one, "
            f"both numbers from 0 to {classes - 1}"
        )
    return pairs

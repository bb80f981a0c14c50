"""Labels as class numbers: from names, whole numbers or floats, with −1 where a label is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

MOST_CLASSES = 100_000  # more are codes or ids that were mistaken for class numbers


def encode_labels(labels: Any, classes: Sequence[str] | None, name: str) -> tuple[Tensor, tuple[str, ...]]:
    """Labels as class numbers, and the class names.

    Args:
        labels: (samples,) class names, which are sorted; or whole numbers, which are class numbers already.
        classes: the class names, if they are known.
        name: what to call the data in error messages.

    Returns:
        (samples,) int64 class numbers, and the class names.
    """
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if classes is not None and len(set(map(str, classes))) != len(classes):
        twice = next(c for c in map(str, classes) if list(map(str, classes)).count(c) > 1)
        raise ValueError(f"{name} has the class '{twice}' twice; every class needs a name of its own")
    if array.ndim != 1:
        raise ValueError(f"{name} has labels of shape {array.shape}; pass a flat list with one class per sample")
    if array.dtype.kind in "biu" and classes is not None and _are_other_numbers(classes):
        return _from_texts(array.astype(np.int64).astype(str), classes, name)
    if array.dtype.kind in "biu":
        numbers = torch.as_tensor(array.astype(np.int64))
    elif array.dtype.kind == "f":
        numbers = _from_floats(array, name)
    else:
        return _from_texts(array, classes, name)
    count = len(classes) if classes is not None else int(numbers.max()) + 1 if len(numbers) else 0
    if classes is None and count > MOST_CLASSES:
        raise ValueError(
            f"{name} has the label {count - 1}; integer labels are class numbers, counted from 0, and at most "
            f"{MOST_CLASSES} classes are supported: pass codes as text, such as 'c1000000'"
        )
    wrong = numbers[(numbers < 0) | (numbers >= count)]
    if len(wrong):
        raise ValueError(
            f"{name} has the label {int(wrong[0])} ({len(wrong)} such samples); "
            f"labels must be whole numbers from 0 to {count - 1}"
        )
    return numbers, tuple(map(str, classes)) if classes is not None else tuple(str(c) for c in range(count))


def encode_known(labels: Any, classes: tuple[str, ...], count: int, name: str) -> Tensor | None:
    """The same for labels that are known for some of `count` samples: −1, None, NaN or "" mark the others."""
    if labels is None:
        return None
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"{name} have the shape {array.shape}; pass one label per sample, -1 where unknown")
    if len(array) != count:
        raise ValueError(f"there are {len(array)} of {name} for {count} samples; pass one per sample, -1 where unknown")
    known = array != -1 if array.dtype.kind in "iu" else _are_known(array.tolist())
    numbers = torch.full((count,), -1, dtype=torch.int64)
    if known.any():
        values = array[known]
        if values.dtype == object and all(isinstance(value, int | np.integer) for value in values):
            values = values.astype(np.int64)
        numbers[torch.as_tensor(known)] = encode_labels(values, classes, name)[0]
    return numbers


def _are_known(values: list[Any]) -> np.ndarray[Any, Any]:
    import pandas as pd

    return np.array([not pd.isna(value) and value not in (-1, "") for value in values], dtype=bool)


def _are_other_numbers(classes: Sequence[str]) -> bool:
    """Whether the class names are numbers but not 0, 1, 2, …: an integer label is then a name, not a position."""
    names = [str(name) for name in classes]
    return all(name.lstrip("-").isdigit() for name in names) and names != [str(number) for number in range(len(names))]


def _from_texts(
    array: np.ndarray[Any, Any], classes: Sequence[str] | None, name: str
) -> tuple[Tensor, tuple[str, ...]]:
    import pandas as pd

    codes, present = pd.factorize(array.astype(str).astype(object))  # by hashing: fast for a million labels
    names = tuple(sorted(present)) if classes is None else tuple(map(str, classes))
    unknown = sorted(set(present) - set(names))
    if unknown:
        raise ValueError(f"{name} has the label '{unknown[0]}', which is none of the classes {', '.join(names)}")
    number = {text: position for position, text in enumerate(names)}
    numbers = np.array([number[text] for text in present], dtype=np.int64)
    return torch.as_tensor(numbers[codes]), names


def _from_floats(array: np.ndarray[Any, Any], name: str) -> Tensor:
    if not np.isfinite(array).all():
        position = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"{name} has no label (NaN) at position {position}; remove the sample or label it")
    if (array != np.round(array)).any():
        value = array[array != np.round(array)][0]
        raise ValueError(f"{name} has the label {value}; labels must be class numbers or class names")
    if len(array) and np.abs(array).max() >= 2**53:
        raise ValueError(f"{name} has the label {np.abs(array).max():g}; class numbers are counted from 0")
    return torch.as_tensor(array.astype(np.int64))

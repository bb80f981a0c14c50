"""The items of a Dataset: which part is the label, and how the rest becomes a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from .batch import Inputs, leaves

LABEL_KEYS = ("labels", "label", "y", "target", "targets")  # of items that are dicts
NAMES = ("id", "key", "idx", "index", "__key__")  # of dict items: they name the sample and are no input


@dataclass(frozen=True)
class Layout:
    """Where an item has its label and its inputs.

    Attributes:
        label: the position or key of the label; None if items are inputs alone.
        inputs: the positions or keys of the inputs, in the order in which the network takes them.
        single: whether the input is a part by itself rather than a tuple or dict of parts.
        whole: whether an item is itself the input.
        closed: whether `inputs` are also all that a batch has: a collate function may add others, such as a mask.
    """

    label: int | str | None
    inputs: tuple[int | str, ...]
    single: bool = False
    whole: bool = False
    closed: bool = False

    @classmethod
    def of(cls, item: Any, label: int | str | None = None, *, labelled: bool = True, name: str = "the data") -> Layout:
        """The layout of items like this one.

        Args:
            item: `(x, y)`, `(x, y, …)` with y a single value, `(a, mask, y)`, or a dict with a label.
            label: the position or key of the label, if it is not the usual one; all other parts are then inputs.
            labelled: whether there must be a label.
            name: what to call the data in messages.
        """
        if isinstance(item, Mapping):
            return cls._of_dict(item, label, labelled, name)
        if not isinstance(item, tuple | list):
            if labelled:
                raise TypeError(
                    f"the items of {name} must be pairs (x, y) or dicts with a label; item 0 is {type(item).__name__}"
                )
            return cls(None, (), whole=True)
        found = _position(item, label, name)
        if found is None:
            if labelled:
                raise TypeError(
                    f"no part of an item of {name} is a single value that could be its label: {_described(item)}; say "
                    "which part is with label=, a position such as 1 or -1"
                )
            return cls(None, tuple(range(len(item))))
        # Without label=, what follows y in (x, y, …) is no input: weights and indices often come there.
        others = range(found) if label is None else [place for place in range(len(item)) if place != found]
        return cls(found, tuple(others), single=len(others) == 1)

    @classmethod
    def _of_dict(cls, item: Mapping[str, Any], label: int | str | None, labelled: bool, name: str) -> Layout:
        if label is not None and label not in item:
            raise ValueError(f"label is {label!r}, and the items of {name} have the keys {', '.join(map(str, item))}")
        key = label if label is not None else next((key for key in LABEL_KEYS if key in item), None)
        if key is None and labelled:
            raise ValueError(
                f"no key of an item of {name} is a usual name of its label: {', '.join(map(str, item))}; name it with "
                'label=, such as label="class"'
            )
        inputs = [name for name, value in item.items() if name != key and name not in NAMES and is_numeric(value)]
        return cls(key, tuple(inputs))

    def label_of(self, item: Any) -> Any:
        """The label in an item."""
        value = item[self.label]
        if not isinstance(value, Tensor | np.ndarray | np.generic):
            return value
        if not _is_single(value):
            raise ValueError(
                f"the label of an item has the shape {tuple(value.shape)}; it must be a single class. If it is another "
                "part of the item, say which with label="
            )
        return value.item()

    def inputs_of(self, item: Any) -> Any:
        """The inputs in an item, or in a batch of items."""
        if self.whole:
            return item
        if isinstance(item, Mapping):
            return {key: item[key] for key in item if key in self.inputs}
        parts = tuple(item[place] for place in self.inputs)
        return parts[0] if self.single else parts

    def of_batch(self, batch: Any) -> Inputs:
        """The inputs in what a collate function has returned: without the labels."""
        if isinstance(batch, Mapping) and self.closed:
            return {key: batch[key] for key in self.inputs if isinstance(key, str) and key in batch}
        if isinstance(batch, Mapping):
            return {key: value for key, value in batch.items() if key not in (self.label, *LABEL_KEYS, *NAMES)}
        if self.whole or not isinstance(batch, tuple | list):
            return batch
        if self.label is not None and len(batch) < len(self.inputs) + 1:  # (x, y) of (a, mask, y), both put together
            return batch[0]
        return self.inputs_of(batch)


def collate(inputs: Sequence[Any], name: str = "the data") -> Inputs:
    """Inputs of single samples as a batch."""
    try:
        return default_collate([_as_tensors(each) for each in inputs])
    except RuntimeError as error:
        shapes = sorted({tuple(tensor.shape) for each in inputs for tensor in leaves(_as_tensors(each))})
        raise ValueError(
            f"the items of {name} cannot be stacked into a batch: they have the shapes "
            f"{', '.join(map(str, shapes[:4]))}{', …' if len(shapes) > 4 else ''}; pass a collate function that pads "
            'them: loader={"collate_fn": pad}'
        ) from error


def is_numeric(value: Any) -> bool:
    """Whether a network can be given this: numbers, arrays, tensors, or lists of numbers."""
    if isinstance(value, Tensor | bool | int | float | np.number):
        return True
    if isinstance(value, list | tuple):
        return bool(value) and is_numeric(value[0])
    return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"


def _as_tensors(value: Any) -> Any:
    """Arrays and lists of numbers as tensors: `default_collate` would take a list for a tuple of inputs."""
    if isinstance(value, Mapping):
        return {key: _as_tensors(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_as_tensors(part) for part in value)
    if isinstance(value, list | np.ndarray) and is_numeric(value):
        tensor = torch.as_tensor(np.asarray(value))
        return tensor.float() if tensor.dtype == torch.float64 else tensor
    return value


def _position(item: Sequence[Any], label: int | str | None, name: str) -> int | None:
    """The position of the label in a tuple."""
    if label is not None:
        if not isinstance(label, int) or not -len(item) <= label < len(item):
            raise ValueError(
                f"label is {label!r}, and the items of {name} have {len(item)} parts; name a position from "
                f"{-len(item)} to {len(item) - 1}"
            )
        return label % len(item)
    return next((place for place in (1, len(item) - 1) if 0 < place < len(item) and _is_single(item[place])), None)


def _is_single(value: Any) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return (value.numel() if isinstance(value, Tensor) else value.size) == 1
    return isinstance(value, str | bool | int | float | np.generic)


def _described(item: Sequence[Any]) -> str:
    return ", ".join(f"{type(part).__name__}{tuple(part.shape) if hasattr(part, 'shape') else ''}" for part in item)

"""A data set before noise and before any split: inputs by index, given labels, ids, class names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import Subset, default_collate

from ..runtime.seeds import seeded
from .batch import Inputs, map_inputs

PIECE = 65_536  # ids that are looked at at a time
MOST_CLASSES = 100_000  # more are codes or ids that were taken for class numbers


class InputStore(Protocol):
    """Where the inputs of samples come from."""

    def __len__(self) -> int: ...

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Inputs]:
        """The collated inputs of each group of samples, in the order asked for."""
        ...


@runtime_checkable
class Located(Protocol):
    """Inputs that are files."""

    def path(self, position: int) -> Path: ...


@runtime_checkable
class Worded(Protocol):
    """Inputs that are made of texts."""

    def text(self, position: int) -> str: ...


class TensorStore:
    """Inputs that are in memory as tensors: one, or a tuple or dict of them with the same length."""

    def __init__(self, tensors: Inputs, columns: Sequence[str] | None = None) -> None:
        self.tensors = map_inputs(_as_network_input, _to_tensors(tensors))
        self.columns = columns  # of a table: what its values are called
        lengths = sorted({len(tensor) for tensor in leaves(self.tensors)})
        if len(lengths) != 1:
            raise ValueError(f"the inputs have different lengths: {lengths}; every part needs one entry a sample")
        self._length = lengths[0]

    def __len__(self) -> int:
        return self._length

    def at(self, positions: np.ndarray[Any, Any]) -> TensorStore:
        """The inputs at these positions."""
        chosen = torch.from_numpy(positions)
        return TensorStore(map_inputs(lambda tensor: tensor[chosen], self.tensors), self.columns)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Inputs]:
        for index in indices:
            yield map_inputs(lambda tensor: _scaled(tensor.index_select(0, index)), self.tensors)  # noqa: B023


class DatasetStore:
    """Inputs from any map-style Dataset whose items are `(x, y)` or `(x, y, …)`."""

    def __init__(self, dataset: Any) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise TypeError(
                f"{type(dataset).__name__} has no length or cannot be indexed; soft labels are kept per sample, so a "
                "map-style Dataset with __len__ and __getitem__ is needed"
            )
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Inputs]:
        for index in indices:
            yield default_collate([self.dataset[i][0] for i in index.tolist()])


class Positions(Sequence[str]):
    """The ids of samples that were given none: their positions, as text. Made when asked for: of ten million samples
    they would take most of a gigabyte."""

    def __init__(self, count: int) -> None:
        self._places = range(count)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, position: int) -> str: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[str, ...]: ...

    def __getitem__(self, position: int | slice) -> str | tuple[str, ...]:
        found = self._places[position]
        return str(found) if isinstance(found, int) else tuple(map(str, found))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self._places)


@dataclass(frozen=True)
class Source:
    """Samples with their given labels. A true or verified label, where known, is −1 where it is not."""

    store: InputStore
    label: Tensor  # (samples,) int64
    classes: tuple[str, ...]
    ids: Sequence[str]
    true_label: Tensor | None = None
    verified_label: Tensor | None = None
    ids_given: bool = True  # False: the ids are positions, and say nothing about identity across two sets
    shown: InputStore | None = None  # what a person looks at, where the inputs are made of it, as features are

    def __len__(self) -> int:
        return len(self.label)

    def at(self, positions: Tensor) -> Source:
        """The samples at these positions."""
        return replace(
            self,
            store=_store_at(self.store, positions),
            shown=None if self.shown is None else _store_at(self.shown, positions),
            label=self.label[positions],
            ids=tuple(self.ids[position] for position in positions.tolist()),
            true_label=None if self.true_label is None else self.true_label[positions],
            verified_label=None if self.verified_label is None else self.verified_label[positions],
        )

    def with_label(self, label: Tensor) -> Source:
        """The same samples with other given labels, as after corruption. The old ones become the true labels, and the
        verified ones, where there were none of these: it was here that the labels were made wrong."""
        return replace(
            self,
            label=label,
            true_label=self.label if self.true_label is None else self.true_label,
            verified_label=self.label if self.verified_label is None else self.verified_label,
        )

    def with_true_labels(self, labels: Any) -> Source:
        """The same samples with known true labels, for the evaluation."""
        return replace(self, true_label=encode_known(labels, self.classes, len(self), "the true labels"))

    def fingerprint(self) -> str:
        """A short hash of ids, labels and the first inputs: is this the data that the run began with?"""
        digest = hashlib.sha256()
        for content in joined_ids(self.ids):
            digest.update(content)
        digest.update(self.label.contiguous().numpy().data)
        with seeded(torch.device("cpu"), 0, "fingerprint"):  # a Dataset may change its items at random
            for inputs in self.store.batches([torch.arange(min(8, len(self)))] if len(self) else []):
                for tensor in leaves(inputs):
                    digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


def make_source(
    inputs: Any,
    labels: Any = None,
    *,
    ids: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    true_labels: Any = None,
    verified_labels: Any = None,
    name: str = "the data",
) -> Source:
    """A source from arrays, tensors, or a map-style Dataset of `(x, y)`; says all that is wrong with them at once."""
    if isinstance(inputs, Source):
        return inputs
    if labels is None:
        store: InputStore = DatasetStore(inputs)
        labels = _dataset_labels(inputs, name)
    else:
        store = TensorStore(inputs)
    numbers, names = encode_labels(labels, classes, name)
    problems = []
    if len(store) != len(numbers):
        problems.append(f"{name} has {len(store)} inputs but {len(numbers)} labels; give one label a sample")
    if len(numbers) == 0:
        problems.append(f"{name} has no samples")
    if ids is not None and (len(ids) != len(numbers) or len(set(ids)) != len(ids)):
        problems.append(f"{name} has {len(set(ids))} different ids for {len(numbers)} samples; ids must be unique")
    problems += _bad_numbers(store, name)
    if problems:
        raise ValueError("; ".join(problems))
    return Source(
        store=store,
        label=numbers,
        classes=names,
        ids=tuple(map(str, ids)) if ids is not None else Positions(len(numbers)),
        true_label=encode_known(true_labels, names, len(numbers), f"the true labels of {name}"),
        verified_label=encode_known(verified_labels, names, len(numbers), f"the verified labels of {name}"),
        ids_given=ids is not None,
    )


def encode_known(labels: Any, classes: tuple[str, ...], count: int, name: str) -> Tensor | None:
    """Labels that are known for some samples: −1, None, NaN or an empty text where they are not."""
    if labels is None:
        return None
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if len(array) != count:
        raise ValueError(f"there are {len(array)} of {name} for {count} samples; give one a sample, -1 where unknown")
    known = np.array([not pd.isna(value) and value not in (-1, "") for value in array.tolist()], dtype=bool)
    numbers = torch.full((count,), -1, dtype=torch.int64)
    if known.any():
        values = array[known]
        if values.dtype == object and all(isinstance(value, int | np.integer) for value in values):
            values = values.astype(np.int64)
        numbers[torch.as_tensor(known)] = encode_labels(values, classes, name)[0]
    return numbers


def encode_labels(labels: Any, classes: Sequence[str] | None, name: str) -> tuple[Tensor, tuple[str, ...]]:
    """Labels as class numbers, and the class names. Strings are sorted; integers are class numbers already."""
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"{name} has labels of shape {array.shape}; one class a sample is needed, as a flat list")
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
            f"{name} has the label {count - 1}; whole numbers are class numbers, counted from 0, and {MOST_CLASSES} "
            "classes are the most: give codes as text, such as 'c1000000'"
        )
    wrong = numbers[(numbers < 0) | (numbers >= count)]
    if len(wrong):
        raise ValueError(
            f"{name} has the label {int(wrong[0])} ({len(wrong)} such samples); "
            f"labels must be whole numbers from 0 to {count - 1}"
        )
    return numbers, tuple(map(str, classes)) if classes is not None else tuple(str(c) for c in range(count))


def joined_ids(ids: Sequence[str]) -> Iterator[bytes]:
    """The ids with a zero between two of them, for a hash, some at a time."""
    for start in range(0, len(ids), PIECE):
        yield ("\0" if start else "").encode() + "\0".join(ids[start : start + PIECE]).encode()


def leaves(inputs: Inputs) -> list[Tensor]:
    """Every tensor in the inputs."""
    found: list[Tensor] = []
    map_inputs(lambda tensor: found.append(tensor) or tensor, inputs)  # type: ignore[func-returns-value]
    return found


def _store_at(store: InputStore, positions: Tensor) -> InputStore:
    if callable(at := getattr(store, "at", None)):
        chosen: InputStore = at(positions.numpy())
        return chosen
    return DatasetStore(Subset(getattr(store, "dataset"), positions.tolist()))  # noqa: B009


def _are_other_numbers(classes: Sequence[str]) -> bool:
    """Whether the class names are numbers other than their own places: a number then means the name."""
    texts = [str(text) for text in classes]
    return all(text.lstrip("-").isdigit() for text in texts) and texts != [str(place) for place in range(len(texts))]


def _from_texts(
    array: np.ndarray[Any, Any], classes: Sequence[str] | None, name: str
) -> tuple[Tensor, tuple[str, ...]]:
    numbers, found = pd.factorize(array.astype(str).astype(object))  # by hashing: a million labels in a moment
    present = [str(text) for text in found]
    names = tuple(sorted(present)) if classes is None else tuple(map(str, classes))
    position = {text: number for number, text in enumerate(names)}
    strangers = sorted(set(present) - set(names))
    if strangers:
        raise ValueError(f"{name} has the label '{strangers[0]}', which is none of the classes {', '.join(names)}")
    places = np.array([position[text] for text in present], dtype=np.int64)
    return torch.as_tensor(places[numbers]), names


def _from_floats(array: np.ndarray[Any, Any], name: str) -> Tensor:
    if not np.isfinite(array).all():
        where = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"{name} has no label (NaN) at position {where}; leave the sample out or give it a label")
    if (array != np.round(array)).any():
        value = array[array != np.round(array)][0]
        raise ValueError(f"{name} has the label {value}; labels must be class numbers or class names")
    return torch.as_tensor(array.astype(np.int64))


def _dataset_labels(dataset: Any, name: str) -> list[Any]:
    for attribute in ("targets", "labels"):
        values = getattr(dataset, attribute, None)
        if values is not None and len(values) == len(dataset):
            return [int(value) if isinstance(value, Tensor) else value for value in values]
    try:
        return [_plain(dataset[i][1]) for i in range(len(dataset))]
    except (TypeError, IndexError, KeyError) as error:
        raise TypeError(f"the items of {name} must be pairs (x, y); item 0 is {type(dataset[0]).__name__}") from error


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor | np.generic) else value


def _bad_numbers(store: InputStore, name: str) -> list[str]:
    if not isinstance(store, TensorStore):
        return []  # lazily read inputs are checked by `mslg check`
    for tensor in leaves(store.tensors):
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            rows = (~torch.isfinite(tensor.flatten(1) if tensor.dim() > 1 else tensor.unsqueeze(1))).any(1)
            first = int(rows.nonzero()[0])
            count = f"{int(rows.sum())} of {len(rows)} samples"
            hint = "fill them in or leave these samples out"
            return [f"{name} has NaN or infinite values in {count}, first at position {first}; {hint}"]
    return []


def _to_tensors(inputs: Any) -> Inputs:
    if isinstance(inputs, Mapping):
        return {key: _to_tensors(value) for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_to_tensors(value) for value in inputs)
    if isinstance(inputs, Tensor):
        return inputs.detach().cpu()
    array = np.asarray(inputs)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"inputs of type {array.dtype} cannot be fed to a network; encode them as numbers first")
    return torch.as_tensor(array)


def _as_network_input(tensor: Tensor) -> Tensor:
    """Doubles become floats, as networks are; whole numbers stay as they are (they may be tokens)."""
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def _scaled(tensor: Tensor) -> Tensor:
    """Bytes are pixels: stored small, handed out as floats in [0, 1]."""
    return tensor.float().div_(255) if tensor.dtype == torch.uint8 else tensor

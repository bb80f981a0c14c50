"""A data set before noise and before any split: inputs by index, given labels, ids, class names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from .batch import leaves
from .dataset_store import DatasetStore
from .fingerprint import content_digest
from .items import Layout
from .labels import encode_known, encode_labels
from .stores import InputStore, TensorStore, store_at

CHUNK = 65_536  # ids hashed at a time


class Positions(Sequence[str]):
    """Default ids: the positions of the samples as strings, made on demand. As a list, those of ten million samples
    would take most of a gigabyte."""

    def __init__(self, count: int) -> None:
        self._range = range(count)

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, position: int) -> str: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[str, ...]: ...

    def __getitem__(self, position: int | slice) -> str | tuple[str, ...]:
        selected = self._range[position]
        return str(selected) if isinstance(selected, int) else tuple(map(str, selected))

    def __iter__(self) -> Iterator[str]:
        return map(str, self._range)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self._range)


@dataclass(frozen=True)
class Source:
    """Samples with their given labels.

    Args:
        store: the inputs, by position.
        label: (samples,) int64 given labels.
        classes: the class names, by class number.
        ids: a unique name per sample.
        true_label: (samples,) int64, −1 where unknown; only evaluation reads it.
        verified_label: (samples,) int64, −1 where no person has confirmed a label.
        ids_given: False if the ids are mere positions, which identify nothing across two data sets.
        shown: what to show a reviewer, where the inputs were computed from it, as features are.
    """

    store: InputStore
    label: Tensor
    classes: tuple[str, ...]
    ids: Sequence[str]
    true_label: Tensor | None = None
    verified_label: Tensor | None = None
    ids_given: bool = True
    shown: InputStore | None = None

    def __len__(self) -> int:
        return len(self.label)

    def ids_at(self, positions: Tensor) -> list[str]:
        """The ids of the samples at these positions."""
        chosen = positions.tolist()
        if isinstance(self.ids, Positions):  # one by one would take longer than all other columns of a table together
            return list(map(str, chosen))
        return [self.ids[position] for position in chosen]

    def at(self, positions: Tensor) -> Source:
        """The samples at these positions."""
        return replace(
            self,
            store=store_at(self.store, positions),
            shown=None if self.shown is None else store_at(self.shown, positions),
            label=self.label[positions],
            ids=tuple(self.ids_at(positions)),
            true_label=None if self.true_label is None else self.true_label[positions],
            verified_label=None if self.verified_label is None else self.verified_label[positions],
        )

    def with_label(self, label: Tensor) -> Source:
        """The same samples with corrupted given labels. The previous ones become the true and the verified labels,
        unless the source already has some."""
        return replace(
            self,
            label=label,
            true_label=self.label if self.true_label is None else self.true_label,
            verified_label=self.label if self.verified_label is None else self.verified_label,
        )

    def with_true_labels(self, labels: Any) -> Source:
        """The same samples with known true labels, for evaluation."""
        return replace(self, true_label=encode_known(labels, self.classes, len(self), "the true labels"))

    def fingerprint(self) -> str:
        """A short hash of ids, given labels and inputs: tells whether a run continues on the same data."""
        digest = hashlib.sha256()
        for content in [f"{len(self)} positions".encode()] if isinstance(self.ids, Positions) else joined_ids(self.ids):
            digest.update(content)
        small = torch.uint8 if len(self.classes) <= 256 else torch.int32  # an eighth of the time, or half of it
        digest.update(self.label.to(small).numpy().data)
        digest.update(content_digest(self.store))
        return digest.hexdigest()[:16]

    def known_labels_fingerprint(self) -> str | None:
        """A short hash of the verified and true labels; None if there are none."""
        known = [labels for labels in (self.verified_label, self.true_label) if labels is not None]
        return hashlib.sha256(torch.cat(known).numpy().data).hexdigest()[:16] if known else None


def make_source(
    inputs: Any,
    labels: Any = None,
    *,
    ids: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    true_labels: Any = None,
    verified_labels: Any = None,
    label: int | str | None = None,
    loader: Mapping[str, Any] | None = None,
    name: str = "the data",
) -> Source:
    """A source from arrays, tensors, or a map-style Dataset. All problems are reported in one error.

    Args:
        inputs: an array or tensor of shape (samples, ...), a tuple or dict of them, or a Dataset of `(x, y)`,
            `(a, mask, y)` or dicts with a label.
        labels: (samples,) given labels, as class names or class numbers; None to take them from the Dataset.
        ids: a unique name per sample; positions by default.
        classes: the class names, if not all of them occur in the labels.
        true_labels: (samples,) true labels for evaluation, −1 where unknown.
        verified_labels: (samples,) labels that a person has confirmed, −1 where there is none.
        label: the position or key of the label in the items of a Dataset, if it is not the usual one.
        loader: options of a DataLoader, such as num_workers and collate_fn, with which a Dataset is read.
        name: what to call the data in error messages.
    """
    if isinstance(inputs, Source):
        return inputs
    if labels is None:
        store: InputStore = DatasetStore(inputs, None, loader, name=name)
        layout = Layout.of(inputs[0], label, name=name) if len(store) else None
        store = DatasetStore(inputs, layout, loader, name=name)
        labels = [] if layout is None else _dataset_labels(inputs, layout, given=label)
    elif is_dataset(inputs):
        store = DatasetStore(inputs, Layout.of(inputs[0], label, labelled=False, name=name), loader, name=name)
    else:
        columns = getattr(inputs, "columns", None)  # of a data frame
        names_of_columns = None if columns is None else [str(column) for column in columns]
        store = inputs if isinstance(inputs, TensorStore) else TensorStore(inputs, names_of_columns)
    numbers, names = encode_labels(labels, classes, name)
    problems = []
    if len(store) != len(numbers):
        problems.append(f"{name} has {len(store)} inputs but {len(numbers)} labels; pass one label per sample")
    if isinstance(store, TensorStore) and any(0 in tensor.shape[1:] for tensor in leaves(store.tensors)):
        problems.append(f"{name} has inputs of shape {tuple(leaves(store.tensors)[0].shape)}: there are no values")
    if len(numbers) == 0:
        problems.append(f"{name} has no samples")
    if ids is not None and (len(ids) != len(numbers) or len(set(ids)) != len(ids)):
        problems.append(f"{name} has {len(set(ids))} different ids for {len(numbers)} samples; ids must be unique")
    problems += _not_finite(store, name)
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


def joined_ids(ids: Sequence[str]) -> Iterator[bytes]:
    """The ids separated by zero bytes, for a hash, in chunks."""
    for start in range(0, len(ids), CHUNK):
        yield ("\0" if start else "").encode() + "\0".join(ids[start : start + CHUNK]).encode()


def is_dataset(data: Any) -> bool:
    """Whether this is a Dataset rather than arrays."""
    plain = isinstance(data, Tensor | np.ndarray | list | tuple | Mapping) or hasattr(data, "__array__")
    return not plain and hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _dataset_labels(dataset: Any, layout: Layout, *, given: int | str | None) -> list[Any]:
    """The labels of a Dataset: from an attribute or a column if it has one, otherwise by reading every item once."""
    for attribute in ("targets", "labels") if given is None else ():
        values = getattr(dataset, attribute, None)
        if values is not None and len(values) == len(dataset):
            return [int(value) if isinstance(value, Tensor) else value for value in values]
    return [layout.label_of(dataset[position]) for position in range(len(dataset))]


def _not_finite(store: InputStore, name: str) -> list[str]:
    if not isinstance(store, TensorStore):
        return []  # `mslg check` looks at inputs that are read lazily
    for tensor in leaves(store.tensors):
        # A finite sum has finite terms, and takes a twentieth of the time of looking at each of them.
        if not tensor.is_floating_point() or torch.isfinite(tensor.sum()):
            continue
        if not torch.isfinite(tensor).all():
            rows = (~torch.isfinite(tensor.flatten(1) if tensor.dim() > 1 else tensor.unsqueeze(1))).any(1)
            count = f"{int(rows.sum())} of {len(rows)} samples"
            hint = "fill them in or remove these samples"
            return [f"{name} has NaN or infinite values in {count}, first at position {int(rows.nonzero()[0])}; {hint}"]
    return []

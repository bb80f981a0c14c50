"""Data that is passed in Python, as PyTorch users have it, as a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from .dataset_store import loader_options
from .items import Layout
from .readers.hugging_face import is_hugging_face, rows_source
from .source import Source, make_source
from .streams import read_stream


class Items(NamedTuple):
    """What is said about the items of Datasets.

    Attributes:
        label: the position or key of the label, if it is not the usual one.
        key: the position or key of a sample's name, in a stream.
        loader: options of a DataLoader.
    """

    label: int | str | None = None
    key: int | str | None = None
    loader: Mapping[str, Any] | None = None


def as_source(
    data: Any,
    name: str,
    like: Source | None = None,
    *,
    items: Items = Items(),  # noqa: B008 - a constant
    classes: Sequence[str] | None = None,
) -> Source:
    """Arrays, tensors, a Dataset, a DataLoader, a stream or a Source as a source.

    Args:
        data: (X, y), (Dataset, y), a Dataset, a DataLoader, a `datasets.Dataset`, an iterable Dataset, or a Source.
        name: what to call the data in messages.
        like: another set, whose classes it has.
        items: where items of a Dataset have what, and how they are read.
        classes: the class names.
    """
    names = like.classes if classes is None and like is not None else classes
    if isinstance(data, Source):
        return data
    if isinstance(data, DataLoader):
        items = items._replace(loader={**loader_options(data), **(items.loader or {})})
        data = _sampled(data, name)
    made: dict[str, Any] = {"classes": names, "label": items.label, "loader": items.loader, "name": name}
    if isinstance(data, tuple | list) and len(data) == 2:
        return make_source(data[0], data[1], **made)
    if isinstance(data, tuple | list):
        raise TypeError(f"{name} is a {type(data).__name__} of {len(data)}; pass (inputs, labels) or a Dataset")
    if isinstance(data, IterableDataset) or (items.key is not None and not hasattr(data, "__getitem__")):
        if items.key is None:
            raise TypeError(
                f"{name} is an iterable {type(data).__name__}, and soft labels are stored per sample: pass key=, the "
                "position or key of each sample's name in its item, or a map-style Dataset with __len__ and __getitem__"
            )
        return read_stream(data, items.key, label=items.label, classes=names, name=name)
    if is_hugging_face(data):
        return _hugging_face(data, items, name, names, like)
    return make_source(data, **made)


def _hugging_face(rows: Any, items: Items, name: str, classes: Sequence[str] | None, like: Source | None) -> Source:
    """Rows that are ready for a network, such as tokens or what a transform returns, are read as dicts; raw images,
    texts and columns of numbers like those of a file."""
    first = rows[0] if len(rows) else {}
    layout = Layout.of(first, items.label, labelled=False, name=name) if len(rows) else None
    if layout is None or not any(hasattr(first[key], "__len__") for key in layout.inputs if key in first):
        return rows_source(rows, name=name, like=like, label=items.label, classes=classes)
    column = layout.label
    if column is None:
        layout = Layout.of(first, items.label, name=name)  # raises with the right message
    known = column in rows.column_names
    if classes is None and known:
        classes = getattr(rows.features[column], "names", None)
    ids = [str(value) for value in rows["id"]] if "id" in rows.column_names else None
    labels = list(rows[column]) if known else None  # of the column alone: no image is decoded for it
    return make_source(rows, labels, ids=ids, classes=classes, label=items.label, loader=items.loader, name=name)


def _sampled(loader: DataLoader[Any], name: str) -> Any:
    """The Dataset of a loader. The order of batches is the run's own, so a sampler may only choose samples."""
    sampler = loader.sampler
    drawn = RandomSampler | SequentialSampler | WeightedRandomSampler  # of the last, `fit` takes the weights
    if isinstance(loader.dataset, IterableDataset) or isinstance(sampler, drawn):
        return loader.dataset
    if isinstance(sampler, SubsetRandomSampler):
        return Subset(loader.dataset, list(sampler.indices))
    raise ValueError(
        f"the loader of {name} has a {type(sampler).__name__}, and the order of batches is the run's own, so that "
        "it can be resumed; pass the Dataset, and class_balance=True or sample_weights= for how often samples are drawn"
    )

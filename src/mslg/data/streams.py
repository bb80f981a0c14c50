"""Samples that arrive as a stream: read once into a file, then used like any others.

Soft labels belong to samples, and batches are drawn at random, so a stream needs a name per sample and a place where it
can be looked up. Samples are sorted by name: a run can be resumed although the stream comes in another order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from .batch import Inputs, leaves, map_inputs
from .items import Layout, collate
from .source import Source, make_source
from .stores import TensorStore

ROWS = 1024  # sorted at a time


class StreamStore(TensorStore):
    """The inputs of a stream, in memory-mapped files that are deleted with it."""

    def __init__(self, tensors: Inputs, folder: Any) -> None:
        super().__init__(tensors)
        self.folder = folder


def read_stream(
    stream: Iterable[Any],
    key: int | str,
    *,
    label: int | str | None = None,
    classes: Sequence[str] | None = None,
    name: str = "the data",
) -> Source:
    """A source from a stream of items.

    Args:
        stream: yields tuples or dicts, each with inputs of one shape, a label and a name.
        key: the position or key of the name in an item.
        label: the position or key of the label, if it is not the usual one.
        classes: the class names, if not all of them occur.
        name: what to call the data in messages.
    """
    folder = tempfile.TemporaryDirectory(prefix="mslg-stream-")
    keys: list[str] = []
    labels: list[Any] = []
    files: list[BinaryIO] = []
    layout: Layout | None = None
    example: Inputs = None
    try:
        for item in stream:
            keys.append(_key(item, key, name))
            rest = _without(item, key)
            if layout is None:
                layout = Layout.of(rest, label, name=name)
            labels.append(layout.label_of(rest))
            inputs = collate([layout.inputs_of(rest)], name)
            if example is None:
                example = inputs
                files = [(Path(folder.name) / f"{place}.rows").open("w+b") for place in range(len(leaves(inputs)))]
            _append(files, leaves(inputs), leaves(example), keys[-1], name)
        if example is None:
            raise ValueError(f"{name} has no samples")
        order = np.argsort(np.asarray(keys, dtype=object), kind="stable")
        tensors = [
            _sorted(file, tensor, order, Path(folder.name)) for file, tensor in zip(files, leaves(example), strict=True)
        ]
    finally:
        for file in files:
            file.close()
    mapped = iter(tensors)
    store = StreamStore(map_inputs(lambda _: next(mapped), example), folder)
    source = make_source(
        store.tensors,
        np.asarray(labels, dtype=object if isinstance(labels[0], str) else None)[order],
        ids=[keys[place] for place in order.tolist()],
        classes=classes,
        name=name,
    )
    return Source(store, source.label, source.classes, source.ids)


def _key(item: Any, key: int | str, name: str) -> str:
    try:
        return str(item[key])
    except (KeyError, IndexError, TypeError) as error:
        parts = ", ".join(map(str, item)) if isinstance(item, Mapping) else f"{len(item)} parts"
        raise ValueError(
            f"key is {key!r}, and an item of {name} has {parts}; name the part that identifies a sample"
        ) from error


def _without(item: Any, key: int | str) -> Any:
    if isinstance(item, Mapping):
        return {name: value for name, value in item.items() if name != key}
    place = int(key) % len(item)
    return tuple(part for number, part in enumerate(item) if number != place)


def _append(files: Sequence[BinaryIO], tensors: Sequence[Tensor], first: Sequence[Tensor], key: str, name: str) -> None:
    for file, tensor, alike in zip(files, tensors, first, strict=True):
        if tensor.shape != alike.shape or tensor.dtype != alike.dtype:
            raise ValueError(
                f"the sample '{key}' of {name} has the shape {tuple(tensor.shape[1:])}, the first one "
                f"{tuple(alike.shape[1:])}; a stream's samples must have one shape: pad them"
            )
        file.write(tensor.contiguous().numpy().tobytes())


def _sorted(file: BinaryIO, like: Tensor, order: np.ndarray[Any, Any], folder: Path) -> Tensor:
    """The rows of a file in another order, as a memory-mapped tensor."""
    file.flush()
    kind, shape = like.numpy().dtype, (len(order), *like.shape[1:])
    rows = np.memmap(file.name, dtype=kind, mode="r", shape=shape)
    if (np.diff(order) > 0).all():
        return torch.from_numpy(np.memmap(file.name, dtype=kind, mode="c", shape=shape))
    target = folder / f"{Path(file.name).stem}.sorted"
    written = np.memmap(target, dtype=kind, mode="w+", shape=shape)
    for start in range(0, len(order), ROWS):
        written[start : start + ROWS] = rows[order[start : start + ROWS]]
    written.flush()
    Path(file.name).unlink()
    return torch.from_numpy(np.memmap(target, dtype=kind, mode="c", shape=shape))

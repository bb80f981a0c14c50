"""Where the inputs of samples are stored: in memory, or in a Dataset that is read lazily."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from .batch import Inputs, leaves, map_inputs
from .checksum import crc_of


class InputStore(Protocol):
    """The inputs of samples, by position."""

    def __len__(self) -> int: ...

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Inputs]:
        """The collated inputs of each group of positions, in the requested order."""
        ...


@runtime_checkable
class Located(Protocol):
    """A store whose inputs come from files."""

    def path(self, position: int) -> Path: ...


@runtime_checkable
class Worded(Protocol):
    """A store whose inputs are encoded texts."""

    def text(self, position: int) -> str: ...


class TensorStore:
    """Inputs in memory: a tensor, or a tuple or dict of tensors of the same length."""

    def __init__(self, tensors: Inputs, columns: Sequence[str] | None = None, *, checksum: int | None = None) -> None:
        given = _to_tensors(tensors)
        self.tensors = map_inputs(_as_network_input, given)
        self.columns = columns  # the names of a table's columns
        self._checksums: list[tuple[str, int]] | None = None
        if checksum is not None and isinstance(tensors, np.ndarray) and tensors.dtype.str[0] != ">":
            (tensor,) = leaves(given)
            if tensors.nbytes == tensor.nbytes:  # of a type that torch has
                self._checksums = [(str(tensor.dtype), checksum)]
        if self._checksums is None and any(
            before is not after for before, after in zip(leaves(given), leaves(self.tensors), strict=True)
        ):
            self._checksums = _checksums(given)  # now: what was given is not kept
        lengths = sorted({len(tensor) for tensor in leaves(self.tensors)})
        if len(lengths) != 1:
            raise ValueError(f"the inputs have different lengths: {lengths}; every part needs one entry per sample")
        self._length = lengths[0]

    def __len__(self) -> int:
        return self._length

    def checksums(self) -> list[tuple[str, int]]:
        """The type and the CRC-32 of each part, as it was given: floats of all kinds are kept as float32."""
        if self._checksums is None:
            self._checksums = _checksums(self.tensors)
        return self._checksums

    def at(self, positions: np.ndarray[Any, Any]) -> TensorStore:
        """The inputs at these positions."""
        chosen = torch.from_numpy(positions)
        return TensorStore(map_inputs(lambda tensor: tensor[chosen], self.tensors), self.columns)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Inputs]:
        for index in indices:
            yield map_inputs(lambda tensor: _scaled(tensor.index_select(0, index)), self.tensors)  # noqa: B023


class StoreAt:
    """Some of the inputs of a store that cannot be cut itself."""

    def __init__(self, store: InputStore, positions: Tensor) -> None:
        self.store, self.positions = store, positions

    def __len__(self) -> int:
        return len(self.positions)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Inputs]:
        return self.store.batches(self.positions[index] for index in indices)


class LabelsOnly:
    """No inputs: only the labels of the samples are known."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def at(self, positions: np.ndarray[Any, Any]) -> LabelsOnly:
        return LabelsOnly(len(positions))

    def text(self, position: int) -> str:
        """What a reviewer is shown."""
        return "There is nothing to show: only the labels of these samples were given."

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Inputs]:
        raise ValueError("only the labels of these samples were given, not their inputs")


def store_at(store: InputStore, positions: Tensor) -> InputStore:
    """A store of the inputs at these positions only."""
    if callable(at := getattr(store, "at", None)):
        chosen: InputStore = at(positions.numpy())
        return chosen
    return StoreAt(store, positions)


def _checksums(tensors: Inputs) -> list[tuple[str, int]]:
    return [(str(tensor.dtype), crc_of(tensor)) for tensor in leaves(tensors)]


def _to_tensors(inputs: Any) -> Inputs:
    if isinstance(inputs, Mapping):
        return {key: _to_tensors(value) for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_to_tensors(value) for value in inputs)
    if isinstance(inputs, Tensor):
        return inputs.detach().cpu()
    array = np.asarray(inputs)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)  # torch can do next to nothing with other unsigned types
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind not in "biuf":
        raise TypeError(f"inputs of type {array.dtype} cannot be fed to a network; encode them as numbers first")
    return torch.as_tensor(array)


def _as_network_input(tensor: Tensor) -> Tensor:
    """Other floats become float32, as the weights are; integers stay integers (they may be tokens)."""
    return tensor.float() if tensor.is_floating_point() else tensor


def _scaled(tensor: Tensor) -> Tensor:
    """Pixels are stored as bytes and returned as floats in [0, 1]."""
    return tensor.float().div_(255) if tensor.dtype == torch.uint8 else tensor

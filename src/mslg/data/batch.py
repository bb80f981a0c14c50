"""A batch of samples, and inputs that may be a tensor, or a tuple, list or dict of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Inputs = Any  # a tensor, or a tuple, list or dict of them: whatever the network's forward takes


@dataclass(frozen=True, slots=True)
class Batch:
    """What a method gets in each step. It holds no true label, so no method can cheat.

    Args:
        index: (batch,) int64 position of each sample in its source, the key of every per-sample table.
        inputs: a tensor of shape (batch, ...), or a tuple, list or dict of such tensors.
        label: (batch,) int64 given labels; in a clean batch, the verified ones.
        host_index: the index once more, on the host: rows can be chosen by it without waiting for a device.
    """

    index: Tensor
    inputs: Inputs
    label: Tensor
    host_index: npt.NDArray[np.int64] | None = None

    def to(self, device: torch.device | str) -> Batch:
        """The batch on another device."""
        to_gpu = torch.device(device).type == "cuda"

        def move(tensor: Tensor) -> Tensor:
            if to_gpu and tensor.device.type == "cpu":
                tensor = tensor.pin_memory()  # only copies from pinned memory are asynchronous
            return tensor.to(device, non_blocking=True)

        return Batch(move(self.index), map_inputs(move, self.inputs), move(self.label), self.host_index)

    def at(self, rows: slice) -> Batch:
        """Some of the samples."""
        host = None if self.host_index is None else self.host_index[rows]
        return Batch(self.index[rows], map_inputs(itemgetter(rows), self.inputs), self.label[rows], host)

    def microbatches(self, count: int) -> list[Batch]:
        """Up to `count` micro-batches of nearly equal size, at least 2 samples each: batch norm cannot take fewer."""
        count = max(1, min(count, len(self.index) // 2))
        if count == 1:
            return [self]
        bounds = [len(self.index) * number // count for number in range(count + 1)]
        return [self.at(slice(start, stop)) for start, stop in pairwise(bounds)]


def map_inputs(function: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """Apply a function to every tensor of the inputs and keep their structure."""
    if isinstance(inputs, Tensor):
        return function(inputs)
    if isinstance(inputs, Mapping):
        return {key: map_inputs(function, value) for key, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return type(inputs)(map_inputs(function, value) for value in inputs)
    return inputs


def leaves(inputs: Inputs) -> list[Tensor]:
    """Every tensor of the inputs."""
    tensors: list[Tensor] = []
    map_inputs(lambda tensor: tensors.append(tensor) or tensor, inputs)  # type: ignore[func-returns-value]
    return tensors


def call(network: nn.Module | Callable[..., Tensor], inputs: Inputs) -> Tensor:
    """Call a network: a tuple or list becomes its positional arguments, a dict its keyword arguments.

    Returns:
        (batch, classes) logits, in float32 or better.
    """
    args, kwargs = arguments(inputs)
    return logits_of(network(*args, **kwargs))


def arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs as positional and keyword arguments."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}


def logits_of(output: Any) -> Tensor:
    """The logits in a network's output: the output itself, or the `logits` of a Hugging Face style output."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(output).__name__
        raise ValueError(
            f"the network returned {shape}; it must return logits of shape (batch, classes), "
            "or an object with such a tensor as its .logits"
        )
    return logits.to(torch.promote_types(logits.dtype, torch.float32))  # losses and tables stay in full precision


def concat_inputs(parts: list[Inputs]) -> Inputs:
    """Inputs of the same structure, one after the other."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, Mapping):
        return {key: concat_inputs([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple | list):
        return type(first)(concat_inputs(list(group)) for group in zip(*parts, strict=True))
    return first

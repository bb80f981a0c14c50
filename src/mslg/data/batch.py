"""What goes through the loop: a batch of samples, and inputs that may be a tensor, a tuple or a dict of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

Inputs = Any  # a tensor, or a tuple, list or dict of them: whatever the network's forward takes


@dataclass(frozen=True, slots=True)
class Batch:
    """Some samples. There is no true label in it, so no method can look at one."""

    index: Tensor  # position of each sample in its source: the key of every per-sample table
    inputs: Inputs
    label: Tensor  # the given label; in a clean batch the verified one

    def to(self, device: torch.device | str) -> Batch:
        to_gpu = torch.device(device).type == "cuda"

        def move(tensor: Tensor) -> Tensor:
            if to_gpu and tensor.device.type == "cpu":
                tensor = tensor.pin_memory()  # only from such memory does the copy not wait for what the GPU is doing
            return tensor.to(device, non_blocking=True)

        return Batch(move(self.index), map_inputs(move, self.inputs), move(self.label))

    def microbatches(self, count: int) -> list[Batch]:
        """The batch in so many parts of nearly one size, but none of a single sample: batch norm cannot take it."""
        count = max(1, min(count, len(self.index) // 2))
        if count == 1:
            return [self]
        bounds = [len(self.index) * number // count for number in range(count + 1)]
        places = (slice(start, stop) for start, stop in pairwise(bounds))
        return [Batch(self.index[here], map_inputs(itemgetter(here), self.inputs), self.label[here]) for here in places]


def map_inputs(function: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """The same structure, with the function applied to every tensor in it."""
    if isinstance(inputs, Tensor):
        return function(inputs)
    if isinstance(inputs, Mapping):
        return {key: map_inputs(function, value) for key, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return type(inputs)(map_inputs(function, value) for value in inputs)
    return inputs


def call(network: nn.Module | Callable[..., Tensor], inputs: Inputs) -> Tensor:
    """The network's logits: a tuple is spread over its positional arguments, a dict over its keywords."""
    args, kwargs = arguments(inputs)
    return logits_of(network(*args, **kwargs))


def arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs as positional and keyword arguments."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}


def logits_of(output: Any) -> Tensor:
    """The logits in what a network returned: itself, or the `logits` of a Hugging Face style output."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(output).__name__
        raise ValueError(
            f"the network returned {shape}; it must return logits of shape (batch, classes), "
            "or an object with such a tensor as its .logits"
        )
    return logits.to(torch.promote_types(logits.dtype, torch.float32))  # losses and tables are no matter of precision

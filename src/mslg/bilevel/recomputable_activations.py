"""Keep no activation in the graph that is cheap to recompute.

In the common Conv → BatchNorm → ReLU chain autograd saves two tensors of the same size per layer: the input of the
batch norm and the output of the ReLU. The second follows from the first by element-wise kernels, so it is recomputed
where a pass over the graph needs it; so is the end of a residual block, ReLU(BatchNorm + input of the block),
if what is added does not need too many other blocks.
Recomputed values are bit-identical: the same kernels run on the same numbers. The latest one is kept: the layers around
it need it one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

Identity = tuple[int, int, torch.dtype, tuple[int, ...], tuple[int, ...]]

WORTH_IT = 1 << 16  # elements; smaller tensors are not worth the overhead
# Residual blocks that are recomputed one from the other. ResNet-18, batch 32: 0, 1, 2 take 3.6, 3.75, 3.9 plain steps.
DEEPEST = 0

_numbers = count()


class Saved:
    """A tensor saved for the backward pass."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self._version = tensor.detach(), tensor._version

    def get(self) -> Tensor:
        if self._tensor._version != self._version:
            raise RuntimeError(
                f"an activation of shape {tuple(self._tensor.shape)} that the gradient needs was changed in place; "
                "remove the in-place operation from the network"
            )
        return self._tensor


class Narrow:
    """Places in a small plane, where max pooling has found its maxima: as 16 instead of 64 bits."""

    def __init__(self, places: Tensor) -> None:
        self._places = places.to(torch.int16)

    def get(self) -> Tensor:
        return self._places.long()


class Latest:
    """The activation that was recomputed last. It knows its number only: a reference to its node would be a circle."""

    number: int | None = None
    tensor: Tensor | None = None


class Dropped:
    """A ReLU's output that is not kept: `source` is the node of what the ReLU was applied to."""

    def __init__(self, source: Any, depth: int, latest: Latest) -> None:
        self.source, self.depth, self._latest, self._number = source, depth, latest, next(_numbers)

    def get(self) -> Tensor:
        latest = self._latest
        if latest.number != self._number or latest.tensor is None:
            latest.tensor = None  # freed before the next one is made
            with torch.no_grad():
                latest.tensor, latest.number = _value(self.source).relu_(), self._number
        return latest.tensor


class RecomputableActivations(TorchFunctionMode):
    """Inside `watching`, a forward pass is recorded without the outputs of ReLUs that can be recomputed."""

    def __init__(self) -> None:
        super().__init__()
        self._latest = Latest()
        self._dropped: dict[Any, Dropped] = {}  # by the node of the ReLU
        self._arguments: dict[Identity, Dropped] = {}  # of the function that is being called
        self._own: Dropped | None = None  # of the ReLU that is being called
        self._pools = False  # whether it is a max pooling in small planes

    @contextmanager
    def watching(self) -> Iterator[None]:
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda saved: saved.get()), self:
            yield
        self._dropped.clear()

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        first = args[0] if args and isinstance(args[0], Tensor) else None
        source = None if first is None or first.numel() < WORTH_IT else first.grad_fn
        self._arguments, self._own = {}, None
        if source is not None and first is not None:
            self._pools = "max_pool" in getattr(function, "__name__", "") and first[0, 0].numel() < 2**15
            if function in RELUS:
                if (depth := self._depth(source)) <= DEEPEST:
                    self._own = Dropped(source, depth, self._latest)
            elif (dropped := self._dropped.get(source)) is not None:
                self._arguments[_identity(first)] = dropped
        result = function(*args, **(kwargs or {}))
        if self._own is not None and isinstance(result, Tensor) and result.grad_fn is not None:
            self._dropped[result.grad_fn] = self._own
        self._arguments, self._own, self._pools = {}, None, False
        return result

    def forget(self) -> None:
        """Free the latest activation: after a pass over the graph."""
        self._latest.tensor = None

    def _pack(self, tensor: Tensor) -> Saved | Dropped | Narrow:
        if self._own is not None:
            return self._own  # a ReLU saves its result only
        if self._pools and tensor.dtype == torch.int64:
            return Narrow(tensor)
        return self._arguments.get(_identity(tensor)) or Saved(tensor)

    def _depth(self, source: Any) -> int:
        """How many residual blocks it takes to recompute what this node has returned; too many if it cannot be."""
        if _is_batch_norm(source):
            return 0
        if source.name() != "AddBackward0" or source._saved_alpha != 1:
            return DEEPEST + 1
        shape = source._input_metadata[0].shape
        depths = []
        for part, number in source.next_functions:
            if part is None or part._input_metadata[number].shape != shape:
                return DEEPEST + 1
            if part.name() == "ReluBackward0":
                depths.append(1 + (self._dropped[part].depth if part in self._dropped else 0))
            else:
                depths.append(0 if _is_batch_norm(part) else DEEPEST + 1)
        return max(depths)


RELUS = (F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_)


def _identity(tensor: Tensor) -> Identity:
    # With the strides: a square matrix and its transpose share memory and shape, and tied weights save both.
    return tensor.data_ptr(), tensor._version, tensor.dtype, tuple(tensor.shape), tensor.stride()


def _is_batch_norm(node: Any) -> bool:
    if node is None or node.name() != "NativeBatchNormBackward0" or not node._saved_training:
        return False
    # Scale and shift must be parameters (or absent): the node does not save the shift.
    return all(source is None or hasattr(source, "variable") for source, _ in node.next_functions[1:])


def _value(node: Any) -> Tensor:
    """What a node has returned, as a tensor of its own."""
    if node.name() == "NativeBatchNormBackward0":
        weight, bias = (None if source is None else source.variable for source, _ in node.next_functions[1:])
        return F.batch_norm(node._saved_input, None, None, weight, bias, True, 0.0, node._saved_eps)
    if node.name() == "ReluBackward0":
        result: Tensor = node._saved_result
        return result.clone()
    (first, _), (second, _) = node.next_functions
    value = _value(first)
    other: Tensor = second._saved_result if second.name() == "ReluBackward0" else _value(second)
    return value.add_(other)

"""Let go of activations that are cheap to restore, while the clean pass needs the room.

In the common Conv → BatchNorm → ReLU chain autograd keeps two tensors of the same size a layer: the input of the batch
norm and the output of the ReLU. The second is one element-wise kernel away from the first, so between the look-ahead
and the tangent it need not be there. Restored values are bit-identical: the same kernels see the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Identity = tuple[int, int, torch.dtype, tuple[int, ...], tuple[int, ...]]

_WORTH_IT = 1 << 16  # elements; smaller tensors are not worth a Python object


class Saved:
    """One tensor kept for the backward pass. It may be dropped once somebody has told how to restore it."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor: Tensor | None = tensor.detach()
        self._version = tensor._version
        self._normalised_by: Any = None

    def drop(self, normalised_by: Any) -> None:
        self._normalised_by = normalised_by
        self._tensor = None

    def get(self) -> Tensor:
        if self._tensor is None:
            self._tensor = _relu_of_batch_norm(self._normalised_by)
            self._version = self._tensor._version
        if self._tensor._version != self._version:
            raise RuntimeError(
                f"an activation of shape {tuple(self._tensor.shape)} that the gradient needs has been changed by an "
                "in-place operation; take the in-place operation out of the network"
            )
        return self._tensor


class RecomputableActivations:
    """Watches one forward pass through saved-tensor hooks; `release` then frees what can be restored."""

    def __init__(self) -> None:
        self._saved: dict[Identity, Saved] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        with torch.autograd.graph.saved_tensors_hooks(self._pack, Saved.get):
            yield

    def _pack(self, tensor: Tensor) -> Saved:
        if tensor.numel() < _WORTH_IT:
            return Saved(tensor)
        # The ReLU and the layer behind it save the same tensor: one entry for both, or dropping one frees nothing.
        identity = _identity(tensor)
        saved = self._saved.get(identity)
        if saved is None:
            saved = self._saved[identity] = Saved(tensor)
        return saved

    def release(self, output: Tensor) -> None:
        """Drop every saved ReLU output whose batch norm kept its input. The graph of `output` stays usable."""
        seen: set[Any] = set()
        stack: list[Any] = [output.grad_fn]
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            stack.extend(source for source, _ in node.next_functions)
            if node.name() == "ReluBackward0" and _is_batch_norm(node.next_functions[0][0]):
                saved = self._saved.get(_identity(node._saved_result))
                if saved is not None:
                    saved.drop(node.next_functions[0][0])
        self._saved.clear()


def _identity(tensor: Tensor) -> Identity:
    # With the strides: a square matrix and its transpose share memory and shape, and tied weights save both.
    return tensor.data_ptr(), tensor._version, tensor.dtype, tuple(tensor.shape), tensor.stride()


def _is_batch_norm(node: Any) -> bool:
    if node is None or node.name() != "NativeBatchNormBackward0" or not node._saved_training:
        return False
    # Scale and shift must be plain parameters (or absent): the node keeps the shift nowhere else.
    return all(source is None or hasattr(source, "variable") for source, _ in node.next_functions[1:])


def _relu_of_batch_norm(node: Any) -> Tensor:
    weight, bias = (None if source is None else source.variable for source, _ in node.next_functions[1:])
    with torch.no_grad():
        return F.batch_norm(node._saved_input, None, None, weight, bias, True, 0.0, node._saved_eps).relu_()

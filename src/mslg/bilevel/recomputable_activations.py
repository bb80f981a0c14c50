"""Free activations that are cheap to recompute, while the clean pass needs the memory.

In the common Conv → BatchNorm → ReLU chain autograd saves two tensors of the same size per layer: the input of the
batch norm and the output of the ReLU. The second follows from the first by element-wise kernels, so it is not needed
between the look-ahead and the tangent. Recomputed values are bit-identical: the same kernels run on the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Identity = tuple[int, int, torch.dtype, tuple[int, ...], tuple[int, ...]]

_WORTH_IT = 1 << 16  # elements; smaller tensors are not worth the overhead


class Saved:
    """A tensor saved for the backward pass. It may be dropped if it can be recomputed from a batch norm."""

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
                f"an activation of shape {tuple(self._tensor.shape)} that the gradient needs was changed in place; "
                "remove the in-place operation from the network"
            )
        return self._tensor


class RecomputableActivations:
    """Records a forward pass through saved-tensor hooks; `release` then frees what can be recomputed."""

    def __init__(self) -> None:
        self._saved: dict[Identity, Saved] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        with torch.autograd.graph.saved_tensors_hooks(self._pack, Saved.get):
            yield

    def _pack(self, tensor: Tensor) -> Saved:
        if tensor.numel() < _WORTH_IT:
            return Saved(tensor)
        # The ReLU and the next layer save the same tensor: they share an entry, or dropping one would free nothing.
        identity = _identity(tensor)
        saved = self._saved.get(identity)
        if saved is None:
            saved = self._saved[identity] = Saved(tensor)
        return saved

    def release(self, output: Tensor) -> None:
        """Drop every saved ReLU output whose batch norm has saved its input. The graph of `output` stays usable."""
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
    # Scale and shift must be parameters (or absent): the node does not save the shift.
    return all(source is None or hasattr(source, "variable") for source, _ in node.next_functions[1:])


def _relu_of_batch_norm(node: Any) -> Tensor:
    weight, bias = (None if source is None else source.variable for source, _ in node.next_functions[1:])
    with torch.no_grad():
        return F.batch_norm(node._saved_input, None, None, weight, bias, True, 0.0, node._saved_eps).relu_()

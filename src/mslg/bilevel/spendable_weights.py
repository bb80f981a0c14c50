"""Weights that are needed for one gradient only: each is freed as soon as its own gradient is known.

A gradient arrives layer by layer, last layer first, when nothing of the pass needs the weight any more. So look-ahead
weights and the gradient taken at them never take the memory of both.
"""

from __future__ import annotations

from functools import partial
from weakref import ref

from torch import Tensor

WORTH_IT = 1 << 16  # elements; smaller tensors are not worth the overhead


class Spendable:
    """Takes over a list of weights, which is empty afterwards."""

    def __init__(self, weights: list[Tensor], spends: bool = True) -> None:
        self._weights, self._spends, self.spent = weights[:], spends, False
        weights.clear()

    def leaves(self) -> list[Tensor]:
        """The weights, for one call of `torch.autograd.grad` that must not keep its graph."""
        leaves = [weight.detach().requires_grad_() for weight in self._weights]
        self._weights.clear()
        if self._spends:
            for leaf in leaves:
                if leaf.numel() >= WORTH_IT:
                    leaf.register_hook(partial(self._spend, ref(leaf)))
        return leaves

    def _spend(self, weight: ref[Tensor], gradient: Tensor) -> None:
        if (leaf := weight()) is not None:
            # Not by resizing the storage: whatever else refers to it, such as a detached weight in the graph, keeps it.
            leaf.data = leaf.new_empty(0)
            self.spent = True

"""Rules of sums, means and maxima, over dimensions or over processes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...runtime.distributed import averaged
from .registry import rule, signed


@rule("MeanBackward0")
def mean_of_all(_: Any, tangent: Tensor) -> Tensor:
    return tangent.mean()


@rule("SumBackward0")
def sum_of_all(_: Any, tangent: Tensor) -> Tensor:
    return tangent.sum()


@rule("MeanBackward1")
def mean(node: Any, tangent: Tensor) -> Tensor:
    return tangent.mean([signed(dim) for dim in node._saved_dim], keepdim=node._saved_keepdim)


@rule("SumBackward1")
def sum_(node: Any, tangent: Tensor) -> Tensor:
    return tangent.sum([signed(dim) for dim in node._saved_dim], keepdim=node._saved_keepdim)


@rule("MaxBackward0", "MinBackward0")
def extreme(node: Any, tangent: Tensor) -> Tensor:
    dim, chosen = signed(node._saved_dim), node._saved_indices
    picked = tangent.gather(dim, chosen if node._saved_keepdim else chosen.unsqueeze(dim))
    return picked if node._saved_keepdim else picked.squeeze(dim)


@rule("_MeanBackward")
def mean_over_ranks(_: Any, tangent: Tensor) -> Tensor:
    """Each process has its part of the graph."""
    return averaged([tangent])[0]

"""Rules of sums and products of tensors and matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .registry import Tangent, rule, shape_of, total


@rule("AddBackward0")
def add(node: Any, left: Tangent, right: Tangent) -> Tensor:
    right = right * node._saved_alpha if right is not None and node._saved_alpha != 1 else right
    result = total(left, right)
    assert result is not None
    return result.expand(shape_of(node))


@rule("SubBackward0")
def subtract(node: Any, left: Tangent, right: Tangent) -> Tensor:
    result = total(left, None if right is None else right * -node._saved_alpha)
    assert result is not None
    return result.expand(shape_of(node))


@rule("WhereBackward0")
def where(node: Any, left: Tangent, right: Tangent) -> Tensor:
    zero = torch.zeros((), dtype=(left if left is not None else right).dtype)  # type: ignore[union-attr]
    zero = zero.to(node._saved_condition.device)
    chosen = torch.where(node._saved_condition, zero if left is None else left, zero if right is None else right)
    return chosen.expand(shape_of(node))  # the branch without a tangent may be the larger one


@rule("MulBackward0")
def multiply(node: Any, left: Tangent, right: Tangent) -> Tangent:
    return total(
        None if left is None else left * node._saved_other,
        None if right is None else node._saved_self * right,
    )


@rule("DivBackward0")
def divide(node: Any, left: Tangent, right: Tangent) -> Tangent:
    divisor = node._saved_other
    return total(
        None if left is None else left / divisor,
        None if right is None else -right * node._saved_self / divisor**2,
    )


@rule("AddmmBackward0")
def addmm(node: Any, bias: Tangent, left: Tangent, right: Tangent) -> Tensor:
    return _plus_product(node, bias, left, right, node._saved_mat1, node._saved_mat2)


@rule("BaddbmmBackward0")
def baddbmm(node: Any, bias: Tangent, left: Tangent, right: Tangent) -> Tensor:
    return _plus_product(node, bias, left, right, node._saved_batch1, node._saved_batch2)


def _plus_product(node: Any, bias: Tangent, left: Tangent, right: Tangent, first: Any, second: Any) -> Tensor:
    product = _product(first, second, left, right)
    if product is not None and node._saved_alpha != 1:
        product = node._saved_alpha * product
    result = total(None if bias is None else bias * node._saved_beta, product)
    assert result is not None
    return result.expand(shape_of(node))


@rule("MmBackward0", "BmmBackward0")
def matrix_product(node: Any, left: Tangent, right: Tangent) -> Tangent:
    return _product(node._saved_self, node._saved_mat2, left, right)


@rule("MvBackward0")
def matrix_times_vector(node: Any, left: Tangent, right: Tangent) -> Tangent:
    return _product(node._saved_self, node._saved_vec, left, right)


def _product(first: Any, second: Any, left: Tangent, right: Tangent) -> Tangent:
    """The product rule. An operand is saved only if the other one has a tangent."""
    return total(None if left is None else left @ second, None if right is None else first @ right)

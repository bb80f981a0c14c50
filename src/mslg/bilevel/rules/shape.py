"""Rules of operations that rearrange, cut or join tensors: the same operation on the tangent."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .registry import Tangent, rule, shape_of, signed


@rule("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward0", "SqueezeBackward1")
@rule("SqueezeBackward2", "UnsqueezeBackward0")
def reshape(node: Any, tangent: Tensor) -> Tensor:
    return tangent.reshape(shape_of(node))


@rule("ExpandBackward0")
def expand(node: Any, tangent: Tensor) -> Tensor:
    return tangent.expand(shape_of(node))


@rule("TBackward0")
def transpose_matrix(_: Any, tangent: Tensor) -> Tensor:
    return tangent.t()


@rule("RepeatBackward0")
def repeat(node: Any, tangent: Tensor) -> Tensor:
    return tangent.repeat(node._saved_repeats)


@rule("TransposeBackward0", "TransposeBackward1")
def transpose(node: Any, tangent: Tensor) -> Tensor:
    return tangent.transpose(signed(node._saved_dim0), signed(node._saved_dim1))


@rule("PermuteBackward0")
def permute(node: Any, tangent: Tensor) -> Tensor:
    return tangent.permute([signed(dim) for dim in node._saved_dims])


@rule("SelectBackward0")
def select(node: Any, tangent: Tensor) -> Tensor:
    return tangent.select(signed(node._saved_dim), signed(node._saved_index))


@rule("SliceBackward0")
def slice_(node: Any, tangent: Tensor) -> Tensor:
    dim, start, end, step = (getattr(node, f"_saved_{name}") for name in ("dim", "start", "end", "step"))
    start, end = (None if bound is None else signed(bound) for bound in (start, end))
    return torch.ops.aten.slice.Tensor(tangent, signed(dim), start, end, step)  # type: ignore[no-any-return]


@rule("IndexBackward0")
def index(node: Any, tangent: Tensor, *_: Tangent) -> Tensor:
    return torch.ops.aten.index.Tensor(tangent, list(node._saved_indices))  # type: ignore[no-any-return]


@rule("ToCopyBackward0")
def cast(node: Any, tangent: Tensor) -> Tensor:
    return tangent.to(node._input_metadata[0].dtype)


@rule("ConstantPadNdBackward0")
def pad(node: Any, tangent: Tensor) -> Tensor:
    return F.pad(tangent, [signed(width) for width in node._saved_pad])


@rule("CatBackward0", "StackBackward0")
def join(node: Any, *tangents: Tangent) -> Tensor:
    some = next(tangent for tangent in tangents if tangent is not None)
    result = some.new_zeros(shape_of(node), dtype=node._input_metadata[0].dtype)
    # The node's backward splits its argument into views, one per operand. Writing to them puts each tangent into its
    # part of the result; the parts of constant operands, whose size the graph does not record, stay zero.
    views = node(result)
    for view, tangent in zip(views if isinstance(views, tuple) else (views,), tangents, strict=True):
        if tangent is not None:
            view.copy_(tangent)
    return result


@rule("SplitBackward0", "UnsafeSplitBackward0")
def split(node: Any, tangent: Tensor) -> tuple[Tensor, ...]:
    return torch.split(tangent, node._saved_split_size, signed(node._saved_dim))


@rule("SplitWithSizesBackward0")
def split_with_sizes(node: Any, tangent: Tensor) -> tuple[Tensor, ...]:
    return torch.split(tangent, list(node._saved_split_sizes), signed(node._saved_dim))


@rule("UnbindBackward0")
def unbind(node: Any, tangent: Tensor) -> tuple[Tensor, ...]:
    return tangent.unbind(signed(node._saved_dim))

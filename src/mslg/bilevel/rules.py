"""How each recorded operation carries a tangent forwards: one rule per autograd node.

A rule gets the node and the tangents of its inputs (None = zero) and returns the tangent of its output. Three families
cover most networks:

* linear operations: the tangent goes through the same operation;
* operations with a symmetric Jacobian (every element-wise function, softmax): forwards and backwards are the same
  product, so the node's own backward does the work;
* products (convolution, matrix products, normalisations with a scale): the product rule, with the operands that the
  backward pass has saved anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class Unsupported(Exception):
    """The recorded graph holds an operation without a rule."""


Tangent = Tensor | None
Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
PARTS = 4  # pieces of the batch in which a product is added to another


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of these nodes."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def signed(dim: int) -> int:
    """Autograd hands out a negative dimension as an unsigned 64-bit number."""
    return dim - (1 << 64) if dim >= 1 << 63 else dim


def shape_of(node: Any) -> tuple[int, ...]:
    """The shape of the node's (first) forward output."""
    return tuple(node._input_metadata[0].shape)


def total(*terms: Tangent) -> Tangent:
    """The sum of those that are not zero."""
    present = [term for term in terms if term is not None]
    if not present:
        return None
    result = present[0]
    for term in present[1:]:
        result = result + term
    return result


# Of the numbered overloads those with a number, not a tensor, as second operand: they have one input that can move.
_SYMMETRIC = (
    "ReluBackward0 LeakyReluBackward0 EluBackward0 CeluBackward0 GeluBackward0 SiluBackward0 MishBackward0 "
    "SoftplusBackward0 SigmoidBackward0 TanhBackward0 HardtanhBackward0 HardswishBackward0 HardsigmoidBackward0 "
    "ThresholdBackward0 LogSigmoidBackward0 AbsBackward0 ExpBackward0 Expm1Backward0 ErfBackward0 LogBackward0 "
    "Log1PBackward0 SqrtBackward0 RsqrtBackward0 ReciprocalBackward0 PowBackward0 NegBackward0 SinBackward0 "
    "CosBackward0 ClampBackward1 ClampMinBackward0 ClampMaxBackward0 MulBackward1 DivBackward1 AddBackward1 "
    "SubBackward1 RsubBackward1 NativeDropoutBackward0 MaskedFillBackward0 SoftmaxBackward0 SafeSoftmaxBackward0 "
    "CloneBackward0 AliasBackward0"
)
SYMMETRIC = _SYMMETRIC.split()


@rule(*SYMMETRIC)
def symmetric(node: Any, tangent: Tensor) -> Tensor:
    result: Any = node(tangent.to(node._input_metadata[0].dtype))
    return result[0] if isinstance(result, tuple) else result  # type: ignore[no-any-return]


# --- linear: the same operation on the tangent


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


@rule("AvgPool2DBackward0")
def average_pool(node: Any, tangent: Tensor) -> Tensor:
    return F.avg_pool2d(
        tangent,
        node._saved_kernel_size,
        node._saved_stride or None,
        node._saved_padding,
        node._saved_ceil_mode,
        node._saved_count_include_pad,
        node._saved_divisor_override,
    )


@rule("AdaptiveAvgPool2DBackward0")
def adaptive_average_pool(node: Any, tangent: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(tangent, shape_of(node)[-2:])  # type: ignore[arg-type]


@rule("MaxPool2DWithIndicesBackward0", "AdaptiveMaxPool2DBackward0")
def max_pool(node: Any, tangent: Tensor) -> Tensor:
    chosen = node._saved_result1
    return tangent.flatten(-2).gather(-1, chosen.flatten(-2)).view(chosen.shape)


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


@rule("CatBackward0", "StackBackward0")
def join(node: Any, *tangents: Tangent) -> Tensor:
    some = next(tangent for tangent in tangents if tangent is not None)
    result = some.new_zeros(shape_of(node), dtype=node._input_metadata[0].dtype)
    # The backward pass cuts what it is given into views, one an operand. Written to, they put each tangent in place,
    # and constant operands, of which the graph tells not even the size, keep their zeros.
    places = node(result)
    for place, tangent in zip(places if isinstance(places, tuple) else (places,), tangents):
        if tangent is not None:
            place.copy_(tangent)
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


@rule("WhereBackward0")
def where(node: Any, left: Tangent, right: Tangent) -> Tensor:
    zero = torch.zeros((), dtype=(left if left is not None else right).dtype)  # type: ignore[union-attr]
    zero = zero.to(node._saved_condition.device)
    chosen = torch.where(node._saved_condition, zero if left is None else left, zero if right is None else right)
    return chosen.expand(shape_of(node))  # the branch that does not move may have been the wider one


@rule("MaxBackward0", "MinBackward0")
def extreme(node: Any, tangent: Tensor) -> Tensor:
    dim, chosen = signed(node._saved_dim), node._saved_indices
    picked = tangent.gather(dim, chosen if node._saved_keepdim else chosen.unsqueeze(dim))
    return picked if node._saved_keepdim else picked.squeeze(dim)


# --- products


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
    """The product rule. An operand is there only where the other one may move."""
    return total(None if left is None else left @ second, None if right is None else first @ right)


@rule("ConvolutionBackward0")
def convolution(node: Any, inputs: Tangent, weight: Tangent, bias: Tangent) -> Tensor:
    def convolve(x: Tensor, w: Tensor, b: Tangent) -> Tensor:
        return torch.convolution(
            x,
            w,
            b,
            node._saved_stride,
            node._saved_padding,
            node._saved_dilation,
            node._saved_transposed,
            node._saved_output_padding,
            node._saved_groups,
        )

    if weight is not None:
        result = convolve(node._saved_input, weight, bias)
        if inputs is not None:
            # In place and by parts of the batch, so that no third tensor of this size comes to be.
            for part, tangent in zip(result.chunk(PARTS), inputs.chunk(PARTS)):
                part.add_(convolve(tangent, node._saved_weight, None))
        return result
    if inputs is not None:
        return convolve(inputs, node._saved_weight, bias)
    assert bias is not None
    return bias.view(-1, *[1] * (len(shape_of(node)) - 2)).expand(shape_of(node))


@rule("EmbeddingBackward0")
def embedding(node: Any, weight: Tensor) -> Tensor:
    return F.embedding(node._saved_indices, weight)


@rule("LogSoftmaxBackward0")
def log_softmax(node: Any, tangent: Tensor) -> Tensor:
    probs: Tensor = node._saved_result.exp()
    return tangent - (probs * tangent).sum(signed(node._saved_dim), keepdim=True)


# --- normalisations: the Jacobian of x -> (x - mean)/deviation is symmetric, so the backward kernel serves; the scale
# and the shift add an affine function of the input.


@rule("NativeBatchNormBackward0", "CudnnBatchNormBackward0", "MiopenBatchNormBackward0")
def batch_norm(node: Any, inputs: Tangent, weight: Tangent, bias: Tangent) -> Tensor:
    x = node._saved_input
    per_channel = [1, -1] + [1] * (x.dim() - 2)
    eps = node._saved_eps if hasattr(node, "_saved_eps") else node._saved_epsilon
    if getattr(node, "_saved_training", True):
        mean, inverse_deviation = node._saved_result1, node._saved_result2
    else:
        mean, inverse_deviation = node._saved_running_mean, (node._saved_running_var + eps).rsqrt()
    result = None
    if inputs is not None:
        result = torch.ops.aten.native_batch_norm_backward(
            inputs,
            x,
            node._saved_weight,
            node._saved_running_mean,
            node._saved_running_var,
            node._saved_result1,
            node._saved_result2,
            getattr(node, "_saved_training", True),
            eps,
            [True, False, False],
        )[0]
    if weight is None and bias is None:
        assert result is not None
        return result  # type: ignore[no-any-return]
    # weight·(x − mean)/deviation + bias as one multiply-add over the activations
    slope = None if weight is None else weight * inverse_deviation
    shift = total(bias, None if slope is None else -slope * mean)
    assert shift is not None
    shift = shift.view(per_channel)
    if result is None:
        return (shift.expand_as(x)) if slope is None else torch.addcmul(shift, x, slope.view(per_channel))
    result.add_(shift)
    return result if slope is None else result.addcmul_(x, slope.view(per_channel))  # type: ignore[no-any-return]


@rule("NativeLayerNormBackward0")
def layer_norm(node: Any, inputs: Tangent, weight: Tangent, bias: Tangent) -> Tensor:
    x, mean_, inverse_deviation = node._saved_input, node._saved_result1, node._saved_result2
    kind, x = x.dtype, x.to(mean_.dtype)  # in half precision the statistics are still whole
    result = None
    if inputs is not None:
        inputs = inputs.to(x.dtype)
        result = torch.ops.aten.native_layer_norm_backward(
            inputs, x, node._saved_normalized_shape, mean_, inverse_deviation, None, None, [True, False, False]
        )[0]
        if node._saved_weight is not None:
            result = result * node._saved_weight
    scale = None if weight is None else (x - mean_) * inverse_deviation * weight
    result = total(result, scale, bias)
    assert result is not None
    return result.to(kind).expand(shape_of(node))


@rule("NativeGroupNormBackward0")
def group_norm(node: Any, inputs: Tangent, weight: Tangent, bias: Tangent) -> Tensor:
    x, mean_, inverse_deviation = node._saved_input, node._saved_result1, node._saved_result2
    sizes = (node._saved_N, node._saved_C, node._saved_HxW, node._saved_group)
    per_channel = [1, -1] + [1] * (x.dim() - 2)
    result = None
    if inputs is not None:
        result = torch.ops.aten.native_group_norm_backward(
            inputs.contiguous(), x, mean_, inverse_deviation, None, *sizes, [True, False, False]
        )[0]
        if node._saved_weight is not None:
            result = result * node._saved_weight.view(per_channel)
    scale = None
    if weight is not None:
        grouped = x.reshape(sizes[0], sizes[3], -1)
        normal = (grouped - mean_.unsqueeze(-1)) * inverse_deviation.unsqueeze(-1)
        scale = normal.view_as(x) * weight.view(per_channel)
    result = total(result, scale, None if bias is None else bias.view(per_channel))
    assert result is not None
    return result.expand(shape_of(node))

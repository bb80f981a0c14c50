"""Rules of normalization layers.

The Jacobian of x -> (x - mean)/deviation is symmetric, so the node's backward kernel computes the tangent; scale and
shift add an affine function of the input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .registry import Tangent, rule, shape_of, total


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
    kind, x = x.dtype, x.to(mean_.dtype)  # in half precision, the statistics are still float32
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

"""Rules of convolution, pooling and embedding."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .registry import Tangent, rule, shape_of

PARTS = 4  # parts of the batch in which one convolution is added to another


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
            # In place and in parts of the batch, to avoid a third tensor of this size.
            for part, tangent in zip(result.chunk(PARTS), inputs.chunk(PARTS), strict=True):
                part.add_(convolve(tangent, node._saved_weight, None))
        return result
    if inputs is not None:
        return convolve(inputs, node._saved_weight, bias)
    assert bias is not None
    return bias.view(-1, *[1] * (len(shape_of(node)) - 2)).expand(shape_of(node))


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


@rule("EmbeddingBackward0")
def embedding(node: Any, weight: Tensor) -> Tensor:
    return F.embedding(node._saved_indices, weight)

"""Rules of fused attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .registry import Tangent, Unsupported, rule, total


@rule("ScaledDotProductFlashAttentionForCpuBackward0")
def attention(node: Any, query: Tangent, key: Tangent, value: Tangent) -> Tangent:
    """softmax(scale·QKᵀ + mask)·V by the product rule; the probabilities follow from the saved logsumexp."""
    if node._saved_dropout_p:
        raise Unsupported(f"{node.name()} with dropout")  # its mask is not saved
    q, k, v = node._saved_query, node._saved_key, node._saved_value
    if q.shape[-3] != k.shape[-3]:
        raise Unsupported(f"{node.name()} with grouped queries")
    scale = 1 / math.sqrt(q.shape[-1]) if node._saved_scale is None else node._saved_scale
    scores = scale * (q @ k.transpose(-2, -1))
    if node._saved_attn_mask is not None:
        scores = scores + node._saved_attn_mask
    if node._saved_is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    probs = (scores - node._saved_logsumexp.unsqueeze(-1)).exp().nan_to_num_(0.0)
    del scores
    moved = total(
        None if query is None else query @ k.transpose(-2, -1), None if key is None else q @ key.transpose(-2, -1)
    )
    found = None if value is None else _product(probs, value)
    if moved is None:
        return found
    moved = scale * probs * moved
    moved = moved - probs * moved.sum(-1, keepdim=True)
    return total(_product(moved, v), found)


def _product(left: Tensor, right: Tensor) -> Tensor:
    return left.to(right.dtype) @ right

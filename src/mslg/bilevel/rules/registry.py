"""The registry of rules, and what rules have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

Tangent = Tensor | None
Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}  # by the name of the autograd node


class Unsupported(Exception):
    """The recorded graph contains an operation without a rule."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of these nodes."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def signed(dim: int) -> int:
    """Autograd returns a negative dimension as an unsigned 64-bit number."""
    return dim - (1 << 64) if dim >= 1 << 63 else dim


def shape_of(node: Any) -> tuple[int, ...]:
    """The shape of the node's (first) forward output."""
    return tuple(node._input_metadata[0].shape)


def total(*terms: Tangent) -> Tangent:
    """The sum of the terms that are not None; None if all are."""
    present = [term for term in terms if term is not None]
    if not present:
        return None
    result = present[0]
    for term in present[1:]:
        result = result + term
    return result

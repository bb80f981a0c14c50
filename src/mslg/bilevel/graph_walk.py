"""The tangent of a network's output, from the graph that autograd recorded in the forward pass.

The backward pass needs every operand of the forward pass, so autograd has saved them. Walking the graph in the other
direction with the product rule gives the directional derivative for the arithmetic of two forward passes: nothing is
recomputed, dropout masks and batch statistics are those of the first pass by construction, and no module is called, so
no buffer can change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .rules import RULES, transposed_backward
from .rules.registry import Rule


def graph_tangent(output: Tensor, parameters: Sequence[Tensor], direction: Sequence[Tensor | None]) -> Tensor:
    """The derivative of `output` along the direction. Its graph must still exist. Raises Unsupported if a node can
    not be differentiated."""
    if output.grad_fn is None:
        return torch.zeros_like(output)
    moves = {id(p): d for p, d in zip(parameters, direction, strict=True) if d is not None}
    order, uses = _forward_order(output.grad_fn)
    uses[(output.grad_fn, output.output_nr)] += 1
    tangents: dict[tuple[Any, int], Tensor] = {}
    with torch.no_grad():
        for node in order:
            if (parameter := getattr(node, "variable", None)) is not None:
                if (move := moves.get(id(parameter))) is not None:
                    tangents[node, 0] = move
                continue
            inputs = []
            for edge in node.next_functions:
                inputs.append(tangents.get(edge))
                uses[edge] -= 1
                if not uses[edge]:  # the last use: tensors of the size of activations are freed as early as possible
                    tangents.pop(edge, None)
            if all(tangent is None for tangent in inputs):
                continue
            rule: Rule = RULES.get(node.name(), transposed_backward)
            if _is_complex(node, inputs):  # the rules are for real numbers: of complex ones, abs is not symmetric
                rule = transposed_backward
            result = rule(node, *inputs)
            del inputs
            if isinstance(result, tuple):
                tangents.update({(node, number): part for number, part in enumerate(result)})
            elif result is not None:
                tangents[node, 0] = result
    tangent = tangents.get((output.grad_fn, output.output_nr))
    return torch.zeros_like(output) if tangent is None else tangent


def _is_complex(node: Any, inputs: Sequence[Tensor | None]) -> bool:
    outputs = node._input_metadata
    return any(t is not None and t.is_complex() for t in inputs) or any(about.dtype.is_complex for about in outputs)


def _forward_order(last: Any) -> tuple[list[Any], Counter[tuple[Any, int]]]:
    """All nodes, each after those it depends on, and how often each output is used."""
    order: list[Any] = []
    uses: Counter[tuple[Any, int]] = Counter()
    done: set[Any] = set()
    stack = [last]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
        elif pending := [source for source, _ in node.next_functions if source is not None and source not in done]:
            stack.extend(pending)
        else:
            done.add(stack.pop())
            order.append(node)
            uses.update(node.next_functions)
    return order, uses

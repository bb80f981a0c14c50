"""The last layer of a network: found, and replaced to fit the classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


def find_head(network: nn.Module) -> tuple[str, nn.Linear]:
    """The last Linear layer in the order of registration, with its name."""
    linears = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linears:
        raise ValueError(
            f"{type(network).__name__} has no Linear layer that could be its head; wrap it in a factory of your own "
            "(package.module:factory) that gives it the right number of outputs, or name its last layer with head="
        )
    return linears[-1]


@contextmanager
def head_inputs(head: nn.Module) -> Iterator[list[Tensor]]:
    """Inside, the inputs that the head is called with are collected: the features of each batch."""
    collected: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, inputs: collected.append(inputs[0]))
    try:
        yield collected
    finally:
        hook.remove()


def fit_head(network: nn.Module, classes: int) -> None:
    """Replace the head by a newly drawn one unless it has the right number of outputs."""
    name, head = find_head(network)
    if head.out_features == classes:
        return
    if not name:
        raise ValueError(f"the network is a single Linear layer with {head.out_features} outputs; it needs {classes}")
    parent, _, attribute = name.rpartition(".")
    fresh = nn.Linear(head.in_features, classes, bias=head.bias is not None)
    # A Sequential registers its parts under numbers, which setattr handles as well as names.
    setattr(network.get_submodule(parent), attribute, fresh)

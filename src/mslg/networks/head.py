"""The last layer of a network: found, and replaced to fit the classes."""

from __future__ import annotations

from torch import nn


def find_head(network: nn.Module) -> tuple[str, nn.Linear]:
    """The last Linear layer in the order of registration, with its name."""
    linears = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linears:
        raise ValueError(
            f"{type(network).__name__} has no Linear layer that could be its head; wrap it in a factory of your own "
            "(package.module:factory) that gives it the right number of outputs"
        )
    return linears[-1]


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

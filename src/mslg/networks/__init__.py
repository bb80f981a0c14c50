"""Networks by name."""

from __future__ import annotations

from ..registry import Entry, Registry

NETWORKS = Registry(
    "network",
    {
        "mlp": Entry("mslg.networks.mlp:MLP", "multilayer perceptron with batch norm and dropout"),
        "cnn8": Entry("mslg.networks.cnn:CNN8", "the paper's 8-layer convolutional network"),
    },
)

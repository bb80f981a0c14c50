"""Networks by name."""

from __future__ import annotations

from ..registry import Entry, Registry

NETWORKS = Registry(
    "network",
    {
        "mlp": Entry("mslg.networks.mlp:MLP", "multilayer perceptron with batch norm and dropout"),
        "text-mlp": Entry("mslg.networks.mlp:text_mlp", "a small perceptron with much dropout, for texts"),
        "cnn8": Entry("mslg.networks.cnn:CNN8", "the paper's 8-layer convolutional network"),
        "resnet18": Entry("mslg.networks.resnet:ResNet18", "ResNet-18 for small images"),
    },
    group="mslg.networks",
    option="network=, --network",
    forms="torchvision:NAME, timm:NAME or package.module:factory",
)

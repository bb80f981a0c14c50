"""A small network. mslg passes the sizes that are in the signature, and everything under `network.` in the settings."""

from __future__ import annotations

from torch import nn


def two_layers(inputs: int, classes: int, *, hidden: int = 32) -> nn.Module:
    """Two linear layers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))

"""Factories as a user would write them, named by their import path in the tests."""

from __future__ import annotations

from torch import Tensor, nn

NOT_A_FACTORY = 3


def told(num_classes: int, in_channels: int, width: int = 4) -> nn.Module:
    """Asks for its sizes under other names than ours."""
    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * width, num_classes),
    )


def thousand() -> nn.Module:
    """Knows nothing of the data: a head of 1000 classes, as pretrained networks have."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 1000))


class ExtraLinear(nn.Module):
    """Has the right number of outputs, and registers another Linear after its head."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 2)
        self.projection = nn.Linear(64, 5)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        return logits


def no_linear() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())


def no_network() -> int:
    return 3

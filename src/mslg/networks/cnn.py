"""The paper's 8-layer network for CIFAR-10: six 3×3 convolutions in three blocks, two fully connected layers."""

from __future__ import annotations

from torch import Tensor, nn


class CNN8(nn.Module):
    """Widths 64-64, 128-128, 196-196, then 256, each with batch norm and ReLU; `width` scales all from 64."""

    def __init__(self, classes: int = 10, *, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        widths = [width, 2 * width, 196 * width // 64]
        blocks: list[nn.Module] = []
        for before, after in zip([channels, *widths[:-1]], widths, strict=True):
            blocks += [*_convolution(before, after), *_convolution(after, after), nn.MaxPool2d(2, ceil_mode=True)]
        # Pooling to 4×4 changes nothing for 32×32 inputs and allows other sizes.
        self.features = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(4), nn.Flatten())
        hidden = 4 * width
        self.neck = nn.Sequential(nn.Linear(16 * widths[-1], hidden), nn.BatchNorm1d(hidden), nn.ReLU())
        self.head = nn.Linear(hidden, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.neck(self.features(images)))
        return logits


def _convolution(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]

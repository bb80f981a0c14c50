"""A multilayer perceptron for feature vectors and small images."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from .dropout import Dropout


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

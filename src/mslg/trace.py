"""What the network said about each training sample while it was being trained on: free by-product of every step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Trace:
    """Per-sample memory of predictions, addressed by index.

    `mean`: probabilities averaged over the visits, recent ones counting most (each visit weighs `fresh`);
    `last`: probabilities at the last visit;
    `history`: probability of the given label and predicted class, one column for each kept epoch;
    `final`: probabilities of the finished network, without dropout or augmentation; there once training is over.
    """

    def __init__(self, given: Tensor, classes: int, *, fresh: float = 0.3, kept: int = 24) -> None:
        samples = len(given)
        self.given, self.fresh, self.kept = given, fresh, kept
        self.visits = torch.zeros(samples, dtype=torch.int32, device=given.device)
        self.mean = torch.zeros(samples, classes, device=given.device)
        self.last = torch.zeros(samples, classes, dtype=torch.float16, device=given.device)
        self.final: Tensor | None = None
        self.epochs: list[int] = []
        self.given_history: list[Tensor] = []
        self.predicted_history: list[Tensor] = []

    def fold(self, index: Tensor, log_probs: Tensor) -> None:
        """Take in the predictions of one batch."""
        probs = log_probs.detach().exp()
        # The first visit counts in full, so the mean needs no correction for its zero start.
        weight = torch.where(self.visits[index] == 0, 1.0, self.fresh).unsqueeze(1)
        self.mean[index] = torch.lerp(self.mean[index], probs.to(self.mean.dtype), weight.to(self.mean.dtype))
        self.last[index] = probs.to(self.last.dtype)
        self.visits[index] += 1

    def end_epoch(self, epoch: int) -> None:
        """Keep this epoch in the history; when there are too many, keep every second one."""
        self.epochs.append(epoch)
        self.given_history.append(self.last.gather(1, self.given.unsqueeze(1)).squeeze(1))
        self.predicted_history.append(self.last.argmax(1).to(torch.int16))
        if len(self.epochs) > self.kept:
            for column in (self.epochs, self.given_history, self.predicted_history):
                del column[-2::-2]

    def said(self, index: Tensor) -> Tensor:
        """The best there is to say about these samples: what the finished network says, or the mean until then."""
        table = self.mean if self.final is None else self.final
        return table[index.to(table.device)].cpu()

    def seen(self) -> Tensor:
        """Which samples were ever visited."""
        return self.visits > 0

    def state_dict(self) -> dict[str, Any]:
        """Everything, for the checkpoint."""
        return {
            "visits": self.visits,
            "mean": self.mean,
            "last": self.last,
            "epochs": list(self.epochs),
            "given_history": list(self.given_history),
            "predicted_history": list(self.predicted_history),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to a saved state."""
        for name in ("visits", "mean", "last"):
            getattr(self, name).copy_(state[name])
        self.epochs = [int(epoch) for epoch in state["epochs"]]
        device = self.given.device
        self.given_history = [column.to(device) for column in state["given_history"]]
        self.predicted_history = [column.to(device) for column in state["predicted_history"]]

"""What the network said about each training sample while it was being trained on: free by-product of every step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.sample_table import LARGE, SampleTable, file_if_large
from ..runtime import distributed


class PredictionHistory:
    """Per-sample memory of predictions, addressed by index.

    `mean`: probabilities averaged over the visits, recent ones counting most (each visit weighs `fresh`);
    `last_given`, `last_predicted`: the given label's probability and the predicted class at the last visit;
    `history`: both, one column for each kept epoch, fewer of very many samples;
    `final`: probabilities of the finished network, without dropout or augmentation; there once training is over.

    Tables too large for memory are kept in files in `folder`, where there is one.
    """

    def __init__(
        self, given: Tensor, classes: int, *, fresh: float = 0.3, kept: int = 24, folder: Path | None = None
    ) -> None:
        samples, device = len(given), given.device
        self.given, self.classes, self.fresh, self.folder = given, classes, fresh, folder
        self.kept = min(kept, max(4, LARGE // 8 // (4 * max(samples, 1))))
        self.visits = SampleTable(samples, dtype=torch.int32, device=device)
        in_file = file_if_large(folder, "predictions", samples, classes, torch.float32)
        kind = torch.float32 if in_file is None else torch.float16
        self.mean = SampleTable(samples, classes, dtype=kind, device=device, path=in_file)
        self.last_given = SampleTable(samples, dtype=torch.float16, device=device)
        self.last_predicted = SampleTable(samples, dtype=torch.int16 if classes < 2**15 else torch.int32, device=device)
        self.final: SampleTable | None = None
        self.epochs: list[int] = []
        self.given_history: list[Tensor] = []
        self.predicted_history: list[Tensor] = []

    def fold(self, index: Tensor, log_probs: Tensor) -> None:
        """Take in the predictions of one batch."""
        probs = log_probs.detach().exp()
        visits = self.visits[index]
        # The first visit counts in full, so the mean needs no correction for its zero start.
        weight = torch.where(visits == 0, 1.0, self.fresh).unsqueeze(1)
        kind = torch.promote_types(self.mean.dtype, torch.float32)
        self.mean[index] = torch.lerp(self.mean[index].to(kind), probs.to(kind), weight.to(kind))
        self.last_given[index] = probs.gather(1, self.given.index_select(0, index).unsqueeze(1)).squeeze(1)
        self.last_predicted[index] = probs.argmax(1)
        self.visits[index] = visits + 1

    def end_epoch(self, epoch: int) -> None:
        """Keep this epoch in the history; when there are too many, keep every second one."""
        self.epochs.append(epoch)
        self.given_history.append(self.last_given.rows.clone())
        self.predicted_history.append(self.last_predicted.rows.clone())
        if len(self.epochs) > self.kept:
            for column in (self.epochs, self.given_history, self.predicted_history):
                del column[-2::-2]

    def history(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """(samples, kept epochs): the given label's probability and the predicted class."""
        place = distributed.local_rows(index.to(self.given.device))
        columns = ([column[place].cpu() for column in kept] for kept in (self.given_history, self.predicted_history))
        given, predicted = (torch.stack(found, 1) if found else torch.empty(len(index), 0) for found in columns)
        return given, predicted

    def begin_final(self) -> SampleTable:
        """The empty table of final predictions."""
        samples = len(self.given)
        in_file = file_if_large(self.folder, "final_predictions", samples, self.classes, torch.float16)
        self.final = SampleTable(samples, self.classes, dtype=torch.float16, path=in_file, journal=False)
        return self.final

    def said(self, index: Tensor) -> Tensor:
        """The best there is to say about these samples: what the finished network says, or the mean until then."""
        return (self.mean if self.final is None else self.final)[index].cpu()

    def seen(self, index: Tensor) -> Tensor:
        """Which of these samples were ever visited."""
        return (self.visits[index] > 0).cpu()

    def tables(self) -> dict[str, SampleTable]:
        """All that a checkpoint keeps but for the history."""
        names = ("visits", "mean", "last_given", "last_predicted")
        return {name: getattr(self, name) for name in names}

    def journal_bytes(self) -> int:
        """What the journals of tables in files hold since the last checkpoint."""
        return sum(table.journal_bytes() for table in self.tables().values())

    def checkpointed(self) -> None:
        """A checkpoint with this history is safely on disk."""
        for table in self.tables().values():
            table.checkpointed()

    def state_dict(self) -> dict[str, Any]:
        """Everything, for the checkpoint."""
        return {
            **{name: dict(table.state_dict()) for name, table in self.tables().items()},
            "epochs": list(self.epochs),
            "given_history": [{"rows": column} for column in self.given_history],
            "predicted_history": [{"rows": column} for column in self.predicted_history],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Back to a saved state."""
        for name, table in self.tables().items():
            table.load_state_dict(state[name])
        self.epochs = [int(epoch) for epoch in state["epochs"]]
        device = self.given.device
        self.given_history = [column["rows"].to(device) for column in state["given_history"]]
        self.predicted_history = [column["rows"].to(device) for column in state["predicted_history"]]

"""What the network predicted for each training sample during training: a free by-product of every step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.sample_table import LARGE, SampleTable, file_if_large, sharded_state
from ..runtime import distributed
from ..runtime.sharding import PerSample

TOGETHER = 20  # batches folded at once: as many as between two looks at the tables


class PredictionHistory:
    """Per-sample predictions, addressed by index.

    `mean`: exponential moving average of the probabilities, with weight `fresh` on the newest;
    `last_given`, `last_predicted`: the given label's probability and the predicted class at the last visit;
    `history`: both, one column per kept epoch (at most `kept`, fewer for very large data sets);
    `final`: probabilities of the trained network, without dropout or augmentation; None during training.

    Tables too large for memory are kept in files in `folder`, if given.
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
        self._place: Tensor | None = None  # of each sample among those that were folded last
        self._waiting: list[tuple[Tensor, Tensor]] = []  # batches that are not in the tables yet

    def fold(self, index: Tensor, log_probs: Tensor) -> None:
        """Take in the predictions of one batch: on a CPU of several at once, which takes a fraction of the time."""
        self._waiting.append((index, log_probs.detach()))
        if len(self._waiting) == TOGETHER or index.device.type != "cpu":
            self._fold_waiting()

    def _fold_waiting(self) -> None:
        if not self._waiting:
            return
        index, log_probs = (torch.cat(parts) for parts in zip(*self._waiting, strict=True))
        # A sample that is drawn twice is visited twice, in order.
        once = len(self._waiting) == 1 or self._differ(index)
        for batch in [(index, log_probs)] if once else self._waiting:
            self._fold(*batch)
        self._waiting = []

    def _differ(self, index: Tensor) -> bool:
        """Whether no sample is among these twice: without sorting them, which takes as long as the rest."""
        if self._place is None:
            self._place = torch.empty(len(self.given), dtype=torch.int32)
        number = torch.arange(len(index), dtype=torch.int32)
        self._place[index] = number
        return torch.equal(self._place.index_select(0, index), number)

    def _fold(self, index: Tensor, log_probs: Tensor) -> None:
        probs = log_probs.exp()
        visits = self.visits[index]
        # The first visit counts in full, so the mean needs no correction for its zero start.
        weight = torch.where(visits == 0, 1.0, self.fresh).unsqueeze(1)
        kind = torch.promote_types(self.mean.dtype, torch.float32)
        self.mean[index] = torch.lerp(self.mean[index].to(kind), probs.to(kind), weight.to(kind))
        self.last_given[index] = probs.gather(1, self.given.index_select(0, index).unsqueeze(1)).squeeze(1)
        self.last_predicted[index] = probs.argmax(1)
        self.visits[index] = visits + 1

    def end_epoch(self, epoch: int) -> None:
        """Add this epoch to the history; when it is full, drop every second epoch."""
        self._fold_waiting()
        self.epochs.append(epoch)
        self.given_history.append(self.last_given.rows.clone())
        self.predicted_history.append(self.last_predicted.rows.clone())
        if len(self.epochs) > self.kept:
            for column in (self.epochs, self.given_history, self.predicted_history):
                del column[-2::-2]

    def history(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """(samples, kept epochs): the given label's probability and the predicted class."""
        self._fold_waiting()
        place = distributed.local_rows(index.to(self.given.device))
        given, predicted = (
            torch.stack([column[place].cpu() for column in kept], 1) if kept else torch.empty(len(index), 0)
            for kept in (self.given_history, self.predicted_history)
        )
        return given, predicted

    def begin_final(self) -> SampleTable:
        """The empty table of final predictions."""
        samples = len(self.given)
        in_file = file_if_large(self.folder, "final_predictions", samples, self.classes, torch.float16)
        self.final = SampleTable(samples, self.classes, dtype=torch.float16, path=in_file, journal=False)
        return self.final

    def said(self, index: Tensor) -> Tensor:
        """(samples, classes) probabilities: of the trained network, or the moving average during training."""
        self._fold_waiting()
        return (self.mean if self.final is None else self.final)[index].cpu()

    def seen(self, index: Tensor) -> Tensor:
        """Which of these samples were ever visited."""
        self._fold_waiting()
        return (self.visits[index] > 0).cpu()

    def sample_tables(self) -> list[SampleTable]:
        """Every table that is part of a checkpoint."""
        return list(self._tables().values())

    def _tables(self) -> dict[str, SampleTable]:
        self._fold_waiting()
        return {name: getattr(self, name) for name in ("visits", "mean", "last_given", "last_predicted")}

    def state_dict(self) -> dict[str, Any]:
        """Everything, for the checkpoint."""
        return {
            **{name: sharded_state(table) for name, table in self._tables().items()},
            "epochs": list(self.epochs),
            "given_history": [PerSample(column) for column in self.given_history],
            "predicted_history": [PerSample(column) for column in self.predicted_history],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state whose tensors are plain, as read from a checkpoint."""
        self._waiting = []
        for name, table in self._tables().items():
            table.load_state_dict(state[name])
        self.epochs = [int(epoch) for epoch in state["epochs"]]
        device = self.given.device
        self.given_history = [column.to(device) for column in state["given_history"]]
        self.predicted_history = [column.to(device) for column in state["predicted_history"]]

"""One training run of a control, and what it says of the held-out samples: all that is kept of it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..distributed import agreed, first
from ..exam import Exam
from ..execution import recorded
from ..method import Method
from ..progress import Progress
from ..results import summarise
from ..run import Run
from ..splits import Samples, Splits
from ..trace import Trace
from ..train import EpochRecord, NonFiniteLoss, Position

log = logging.getLogger("mslg")

PREDICTIONS = "predictions.json"


@dataclass
class Looks:
    """Which select samples were right after each epoch, and the classes predicted for the report samples after the
    last epoch and after the one that was best on select."""

    select: list[Tensor] = field(default_factory=list)  # (select samples,) bool each
    last: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    best: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def add(self, right: Tensor, report: Tensor) -> None:
        """One epoch more."""
        if not self.select or right.sum() > max(before.sum() for before in self.select):
            self.best = report
        self.last = report
        self.select.append(right)

    def best_epoch(self) -> int:
        """The first of those that were best on select."""
        return int(torch.stack(self.select).sum(1).argmax())

    def as_json(self) -> dict[str, Any]:
        """Right answers as bits, predictions as class numbers."""
        return {
            "select_samples": len(self.select[0]),
            "select_right": [np.packbits(right.numpy()).tobytes().hex() for right in self.select],
            "report_last": self.last.tolist(),
            "report_best": self.best.tolist(),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any], epochs: int | None = None) -> Looks:
        """All epochs, or the first: the file may be an epoch ahead of the checkpoint, and that epoch comes again."""
        bits = (np.frombuffer(bytes.fromhex(text), np.uint8) for text in kept["select_right"][:epochs])
        select = [torch.from_numpy(np.unpackbits(packed, count=kept["select_samples"]).astype(bool)) for packed in bits]
        return cls(select, torch.tensor(kept["report_last"]), torch.tensor(kept["report_best"]))


@dataclass
class Looking(Exam):
    """An exam that keeps what is said of the held-out samples; in a folder, before the checkpoint of the epoch."""

    looks: Looks = field(default_factory=Looks)
    run: Run | None = None

    def __call__(self, method: Method, trace: Trace) -> dict[str, float]:
        metrics = super().__call__(method, trace)
        assert self.data.select is not None
        self.looks.add(right(self.predicted["select"], self.data.select), self.predicted["report"])
        if self.run is not None:
            self.run.write_json(PREDICTIONS, self.looks.as_json())
        return metrics


def looks_of(
    build: Callable[[], Method], data: Splits, run: Run | None, *, display: Progress, checkpoint_seconds: float
) -> Looks | None:
    """What a trial says of the held-out samples: read from its folder if it is finished, else by training it, from its
    last checkpoint on where there is one. None if it diverged."""
    looks: Looks | None = None
    if run is not None and agreed(run.finished):
        if run.read_json("summary.json")["state"] == "done":
            looks = Looks.from_json(run.read_json(PREDICTIONS))
    else:
        try:
            looks = _train(build(), data, run, display=display, checkpoint_seconds=checkpoint_seconds)
        except NonFiniteLoss as error:
            log.warning("a control diverged: %s", error)
            if run is not None:
                run.write_json("summary.json", {"state": "failed", "error": str(error)})
        if run is not None:
            run.finish()
    if run is not None and first():
        shutil.rmtree(run.checkpoint.parent, ignore_errors=True)
    return looks


def right(predicted: Tensor, samples: Samples) -> Tensor:
    """(samples,) whether each is predicted as verified."""
    return predicted == samples.label


def honest_accuracy(looks: list[Looks]) -> float:
    """Accuracy on select of the best epoch of several trials. Each half of the samples is answered by the epoch that
    was best on the other half: the best of many epochs owes part of its place to chance."""
    every = torch.stack([right for look in looks for right in look.select]).double()  # (epochs of all, samples)
    halves = every[:, ::2], every[:, 1::2]
    chosen = [other[own.mean(1).argmax()] for own, other in (halves, halves[::-1])]
    return float(torch.cat(chosen).mean())


def _train(learner: Method, data: Splits, run: Run | None, *, display: Progress, checkpoint_seconds: float) -> Looks:
    exam = Looking(data, run=run)
    trace = Trace(learner.task.given.to(data.device), learner.task.classes, folder=learner.task.tables)
    position = Position(trace)
    records: list[EpochRecord] = []
    if run is not None:
        run.load(learner, position)
        if position.epoch:
            exam.looks = Looks.from_json(run.read_json(PREDICTIONS), position.epoch)
        records = [EpochRecord(int(line.pop("epoch")), line, {}) for line in run.history()]
    records += recorded(learner, data, exam, position, run=run, display=display, checkpoint_seconds=checkpoint_seconds)
    if run is not None:
        run.write_json("summary.json", summarise(records, exam, data, state="done"))
    return exam.looks

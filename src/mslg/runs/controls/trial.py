"""One training run of a control. Only its predictions for the held-out samples are kept."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.samples import Samples
from ...data.splits import Splits
from ...runtime.distributed import broadcast_object, is_main_process
from ...training.evaluation import Evaluation
from ...training.loop import EpochRecord, NonFiniteLoss
from ...training.method import Method
from ...training.prediction_history import PredictionHistory
from ...training.progress import Progress
from ..folder import Run
from ..record import earlier_records, recorded, start_of
from ..results import summarise

log = logging.getLogger("mslg")

PREDICTIONS = "predictions.json"


@dataclass
class HoldoutPredictions:
    """Which select samples were classified correctly after each epoch, and the predictions for the report samples (the
    test set if there is one) after the last epoch and after the best one on select."""

    select: list[Tensor] = field(default_factory=list)  # (select samples,) bool each
    last: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    best: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def add(self, right: Tensor, report: Tensor) -> None:
        """Add an epoch."""
        if not self.select or right.sum() > max(before.sum() for before in self.select):
            self.best = report
        self.last = report
        self.select.append(right)

    def best_epoch(self) -> int:
        """The best epoch on select; of several, the first."""
        return int(torch.stack(self.select).sum(1).argmax())

    def as_json(self) -> dict[str, Any]:
        """Correctness as packed bits, predictions as class indices."""
        return {
            "select_samples": len(self.select[0]),
            "select_right": [np.packbits(right.numpy()).tobytes().hex() for right in self.select],
            "report_last": self.last.tolist(),
            "report_best": self.best.tolist(),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any], epochs: int | None = None) -> HoldoutPredictions:
        """All epochs, or the first `epochs`: the file may be an epoch ahead of the checkpoint."""
        bits = (np.frombuffer(bytes.fromhex(text), np.uint8) for text in kept["select_right"][:epochs])
        select = [torch.from_numpy(np.unpackbits(packed, count=kept["select_samples"]).astype(bool)) for packed in bits]
        return cls(select, torch.tensor(kept["report_last"]), torch.tensor(kept["report_best"]))


@dataclass
class HoldoutEvaluation(Evaluation):
    """An evaluation that keeps the predictions for held-out samples; in a folder, before the epoch's checkpoint."""

    looks: HoldoutPredictions = field(default_factory=HoldoutPredictions)
    run: Run | None = None

    @property
    def judged_on(self) -> str:
        """Which samples decide: far more than those held out, where there is a test set."""
        return "report" if self.test is None else "test"

    def __call__(self, method: Method, history: PredictionHistory) -> dict[str, float]:
        metrics = super().__call__(method, history)
        assert self.data.select is not None
        self.looks.add(right(self.predicted["select"], self.data.select), self.predicted[self.judged_on])
        if self.run is not None:
            self.run.write_json(PREDICTIONS, self.looks.as_json(), every_epoch=True)
        return metrics


def train_trial(
    build: Callable[[], Method],
    data: Splits,
    run: Run | None,
    *,
    test: Samples | None = None,
    display: Progress,
    checkpoint_seconds: float,
) -> HoldoutPredictions | None:
    """A trial's predictions for the held-out samples, read from its folder if it is finished; otherwise it is trained,
    starting from its last checkpoint if there is one. None if it diverged."""
    looks: HoldoutPredictions | None = None
    if run is not None and broadcast_object(run.finished):
        if run.read_json("summary.json")["state"] == "done":
            looks = HoldoutPredictions.from_json(run.read_json(PREDICTIONS))
    else:
        try:
            looks = _train(build(), data, run, test, display=display, checkpoint_seconds=checkpoint_seconds)
        except NonFiniteLoss as error:
            log.warning("a control diverged: %s", error)
            if run is not None:
                run.write_json("summary.json", {"state": "failed", "error": str(error)})
        if run is not None:
            run.finish(PREDICTIONS)
    if run is not None and is_main_process():
        shutil.rmtree(run.checkpoint.parent, ignore_errors=True)
    return looks


def right(predicted: Tensor, samples: Samples) -> Tensor:
    """Whether each prediction matches the verified label, (samples,) bool."""
    return predicted == samples.label


def honest_accuracy(looks: list[HoldoutPredictions]) -> float:
    """Cross-validated accuracy on select of the best epoch of several trials: each half of the samples is scored by the
    epoch that was best on the other half, since the best of many epochs is partly best by chance."""
    every = torch.stack([right for look in looks for right in look.select]).double()  # (epochs of all, samples)
    halves = every[:, ::2], every[:, 1::2]
    chosen = [other[own.mean(1).argmax()] for own, other in (halves, halves[::-1])]
    return float(torch.cat(chosen).mean())


def _train(
    learner: Method,
    data: Splits,
    run: Run | None,
    test: Samples | None,
    *,
    display: Progress,
    checkpoint_seconds: float,
) -> HoldoutPredictions:
    evaluation = HoldoutEvaluation(data, test, run=run)
    position = start_of(learner, data)
    records: list[EpochRecord] = []
    if run is not None:
        run.load(learner, position)
        if position.epoch:
            evaluation.looks = HoldoutPredictions.from_json(run.read_json(PREDICTIONS), position.epoch)
        records = earlier_records(run)
    records += recorded(
        learner, data, evaluation, position, run=run, display=display, checkpoint_seconds=checkpoint_seconds
    )
    if run is not None:
        run.write_json("summary.json", summarise(records, evaluation, data, state="done"))
    return evaluation.looks

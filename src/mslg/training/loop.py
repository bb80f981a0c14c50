"""The one loop. It knows no method and holds no test set.

for epoch:
    method.begin_epoch
    for batch: method.step, for each part of it where it comes in parts → fold its predictions into the history;
               method.train_on_reviewed reviewed samples, now and then
    method.end_epoch → examine → yield a record
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.splits import Splits
from ..runtime import distributed
from ..runtime.seeds import seeded
from . import optimizer_step as descent
from .method import Method, StepResult
from .prediction_history import PredictionHistory

Result = TypeVar("Result")

CHECK_EVERY = 20  # steps between looks at the loss: each look waits for the device


class NonFiniteLoss(ArithmeticError):
    """Training has diverged."""


class Examiner(Protocol):
    """Measures a method between epochs."""

    def __call__(self, method: Method, history: PredictionHistory) -> dict[str, float]: ...


@dataclass
class EpochRecord:
    """One epoch in numbers. `metrics` is the same however often the run was interrupted; `seconds` is not."""

    epoch: int
    metrics: dict[str, float]
    seconds: dict[str, float]


@dataclass
class Position:
    """Where training is: everything the loop itself has to remember."""

    history: PredictionHistory
    epoch: int = 0
    step: int = 0
    steps: int = 0  # of this epoch
    clean_step: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)  # of this epoch's metrics, over samples
    counts: dict[str, int] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """Everything, for the checkpoint."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "clean_step": self.clean_step,
            "sums": {name: {"rank": total} for name, total in self.sums.items()},
            "counts": {
                name: {"rank": torch.tensor(float(count), dtype=torch.float64)} for name, count in self.counts.items()
            },
            "history": self.history.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to a saved state."""
        self.epoch, self.step, self.clean_step = (int(state[name]) for name in ("epoch", "step", "clean_step"))
        self.sums = {name: total["rank"] for name, total in state["sums"].items()}
        self.counts = {name: round(float(count["rank"])) for name, count in state["counts"].items()}
        self.history.load_state_dict(state["history"])


def train(
    method: Method,
    data: Splits,
    *,
    epochs: int,
    position: Position | None = None,
    evaluation: Examiner | None = None,
    after_step: Callable[[Position], None] | None = None,
) -> Iterator[EpochRecord]:
    """Train, yielding a record after each epoch. Progress, files, checkpoints and stopping are the consumer's.

    `position` is where to go on from and is kept up to date; `after_step` sees it after every step, so that a
    checkpoint can be taken inside an epoch too.
    """
    position = position or Position(PredictionHistory(method.task.given.to(data.device), method.task.classes))
    method.train()
    while position.epoch < epochs:
        epoch, begun = position.epoch, time.perf_counter()
        method.set_progress(epoch, epoch / epochs)
        if position.step == 0:
            position.sums, position.counts, position.clean_step = {}, {}, 0
            with seeded(data.device, data.seed, "begin epoch", epoch), method.computing():
                method.begin_epoch(epoch, data)
        excluded = method.excluded()
        position.steps = data.steps(excluded)
        clean = data.clean_batches(epoch, start=position.clean_step, excluded=excluded)
        for batch in data.batches(epoch, start=position.step, excluded=excluded):
            method.set_progress(epoch, (epoch + position.step / position.steps) / epochs)
            place = (epoch, position.step, *distributed.rank_key())
            with seeded(data.device, data.seed, "step", *place), method.computing():
                results = _step(method, batch, clean)
                _study(method, data, position)
            distributed.average_statistics(method)
            for part, result in results:
                position.history.fold(part.index, result.log_probs)
                _add(position, result.scalars, len(part.index))
            position.step += 1
            position.clean_step = clean.position
            if position.step % CHECK_EVERY == 0 or position.step == position.steps:
                refuse_non_finite(position)
            if after_step is not None and position.step < position.steps:
                after_step(position)
        with seeded(data.device, data.seed, "end epoch", epoch), method.computing():
            method.end_epoch(epoch, data)
        position.history.end_epoch(epoch)
        trained = time.perf_counter()
        metrics = _means(position) | {"optim/lr": method.learning_rate()}
        if evaluation is not None:
            metrics |= evaluation(method, position.history)
            method.train()
        position.epoch, position.step = epoch + 1, 0
        examined = time.perf_counter()
        yield EpochRecord(epoch, metrics, {"train": trained - begun, "evaluation": examined - trained})


def _step(method: Method, batch: Batch, clean: Iterator[Batch]) -> list[tuple[Batch, StepResult]]:
    """A step on a batch, in parts where the task asks for it: what it says of each."""
    parts = batch.parts(method.task.accumulate)
    if len(parts) > 1:
        method.before_microbatches(parts, clean)
        clean = CleanParts(clean, len(parts))
    return _in_parts(parts, lambda part: method.step(part, clean))


def _in_parts(parts: list[Batch], act: Callable[[Batch], Result]) -> list[tuple[Batch, Result]]:
    """Do something for each part of a batch, such that the optimizers step once for all of them."""
    if len(parts) == 1:
        return [(parts[0], act(parts[0]))]
    samples = sum(len(part.index) for part in parts)
    results = []
    for number, part in enumerate(parts, 1):
        with descent.part(len(part.index) / samples, first=number == 1, last=number == len(parts)):
            results.append((part, act(part)))
    return results


class CleanParts(Iterator[Batch]):
    """For each part of a noisy batch a part of one clean batch, which is taken when it is first asked for."""

    def __init__(self, clean: Iterator[Batch], count: int) -> None:
        self.clean, self.count = clean, count
        self._parts: Iterator[Batch] | None = None

    def __next__(self) -> Batch:
        if self._parts is None:
            self._parts = cycle(next(self.clean).parts(self.count))
        return next(self._parts)


def _add(position: Position, scalars: dict[str, Tensor], samples: int) -> None:
    """Sums weighted by batch size: a short last batch must not count as much as a full one."""
    for name, value in scalars.items():
        if name not in position.sums:
            position.sums[name] = torch.zeros_like(value, dtype=torch.float64)
        position.sums[name].add_(value.detach(), alpha=samples)
        position.counts[name] = position.counts.get(name, 0) + samples


def _study(method: Method, data: Splits, position: Position) -> None:
    """Reviewed samples are trained on too: their labels are the surest there are."""
    for batch in data.reviewed_batches(position.epoch, position.step, position.steps):
        for part, loss in _in_parts(batch.parts(method.task.accumulate), method.train_on_reviewed):
            if loss is not None:
                _add(position, {"reviewed/loss": loss}, len(part.index))


def _means(position: Position) -> dict[str, float]:
    totals = dict(zip(position.sums, distributed.averaged(list(position.sums.values()))))
    return {
        name if "/" in name else f"train/{name}": float(total) / position.counts[name] for name, total in totals.items()
    }


def refuse_non_finite(position: Position) -> None:
    """Raise if any of this epoch's metrics has become NaN or infinite."""
    for name, value in zip(position.sums, distributed.averaged(list(position.sums.values()))):
        if not torch.isfinite(value):
            raise NonFiniteLoss(
                f"'{name}' became {float(value)} in epoch {position.epoch + 1}, step {position.step} of "
                f"{position.steps}; try a learning rate ten times smaller, a smaller label_rate or look_ahead, "
                "and check the inputs for extreme values"
            )

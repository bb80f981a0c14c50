"""The training loop. It knows no particular method and holds no test set.

for epoch:
    method.begin_epoch
    for batch: for each of its micro-batches: method.step → fold the predictions into the history
               (none if the method is idle in this epoch)
               now and then: method.train_on_reviewed
    method.end_epoch → evaluate → yield a record
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
from ..runtime.sharding import PerRank, plain
from .method import Method, StepResult
from .prediction_history import PredictionHistory

Result = TypeVar("Result")

CHECK_EVERY = 20  # steps between checks for a finite loss: each waits for the device


class NonFiniteLoss(ArithmeticError):
    """Training has diverged."""


class Evaluator(Protocol):
    """Measures a method between epochs."""

    def __call__(self, method: Method, history: PredictionHistory) -> dict[str, float]: ...


@dataclass
class EpochRecord:
    """The numbers of one epoch. `metrics` does not depend on interruptions of the run; `seconds` does."""

    epoch: int
    metrics: dict[str, float]
    seconds: dict[str, float]


@dataclass
class Position:
    """The present point of the run: all state of the loop itself."""

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
            "sums": {name: PerRank(total) for name, total in self.sums.items()},
            "counts": {
                name: PerRank(torch.tensor(float(count), dtype=torch.float64)) for name, count in self.counts.items()
            },
            "history": self.history.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        state = plain(state)
        self.epoch, self.step, self.clean_step = (int(state[name]) for name in ("epoch", "step", "clean_step"))
        self.sums = state["sums"]
        self.counts = {name: round(float(count)) for name, count in state["counts"].items()}
        self.history.load_state_dict(state["history"])


def train(
    method: Method,
    data: Splits,
    *,
    epochs: int,
    position: Position | None = None,
    evaluation: Evaluator | None = None,
    after_step: Callable[[Position], None] | None = None,
) -> Iterator[EpochRecord]:
    """Train, yielding a record after each epoch. Progress, files, checkpoints and stopping are up to the consumer.

    `position` is where to continue and is kept up to date; `after_step` gets it after every step but an epoch's last,
    so that checkpoints can be taken within an epoch too.
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
        position.steps = 0 if method.idle() else data.steps(excluded)
        clean = data.clean_batches(epoch, start=position.clean_step, excluded=excluded)
        for batch in data.batches(epoch, start=position.step, excluded=excluded) if position.steps else ():
            method.set_progress(epoch, (epoch + position.step / position.steps) / epochs)
            place = (epoch, position.step, *distributed.rank_key())
            with seeded(data.device, data.seed, "step", *place), method.computing():
                results = _step(method, batch, clean)
                _train_on_reviewed(method, data, position)
            distributed.average_statistics(method)
            for microbatch, result in results:
                position.history.fold(microbatch.index, result.log_probs)
                _add(position, result.scalars, len(microbatch.index))
            position.step += 1
            position.clean_step = clean.position
            if position.step % CHECK_EVERY == 0 or position.step == position.steps:
                refuse_non_finite(position, method.advice)
            if after_step is not None and position.step < position.steps:
                after_step(position)
        with seeded(data.device, data.seed, "end epoch", epoch), method.computing():
            method.end_epoch(epoch, data)
        if position.steps:
            position.history.end_epoch(epoch)
        trained = time.perf_counter()
        metrics = _means(position) | {"optim/lr": method.learning_rate()}
        if evaluation is not None:
            metrics |= evaluation(method, position.history)
        position.epoch, position.step = epoch + 1, 0
        examined = time.perf_counter()
        yield EpochRecord(epoch, metrics, {"train": trained - begun, "evaluation": examined - trained})


def _step(method: Method, batch: Batch, clean: Iterator[Batch]) -> list[tuple[Batch, StepResult]]:
    """A step on a batch: the result of each of its micro-batches."""
    microbatches = batch.microbatches(method.task.accumulate)
    if len(microbatches) > 1:
        method.before_microbatches(microbatches, clean)
        clean = CleanMicrobatches(clean, len(microbatches))
    return _accumulated(method, microbatches, lambda microbatch: method.step(microbatch, clean))


def _accumulated(
    method: Method, microbatches: list[Batch], act: Callable[[Batch], Result]
) -> list[tuple[Batch, Result]]:
    """Do something for each micro-batch, such that the optimizers step once for all of them."""
    if len(microbatches) == 1:
        return [(microbatches[0], act(microbatches[0]))]
    samples = sum(len(microbatch.index) for microbatch in microbatches)
    results = []
    for number, microbatch in enumerate(microbatches, 1):
        share = len(microbatch.index) / samples
        with method.optimizer_step.microbatch(share, first=number == 1, last=number == len(microbatches)):
            results.append((microbatch, act(microbatch)))
    return results


class CleanMicrobatches(Iterator[Batch]):
    """A micro-batch of one clean batch for each micro-batch of a noisy one. The clean batch is taken on first use."""

    def __init__(self, clean: Iterator[Batch], count: int) -> None:
        self.clean, self.count = clean, count
        self._microbatches: Iterator[Batch] | None = None

    def __next__(self) -> Batch:
        if self._microbatches is None:
            self._microbatches = cycle(next(self.clean).microbatches(self.count))
        return next(self._microbatches)


def _add(position: Position, scalars: dict[str, Tensor], samples: int) -> None:
    """Sums weighted by batch size: a short last batch must not count as much as a full one."""
    for name, value in scalars.items():
        if name not in position.sums:
            position.sums[name] = torch.zeros_like(value, dtype=torch.float64)
        position.sums[name].add_(value.detach(), alpha=samples)
        position.counts[name] = position.counts.get(name, 0) + samples


def _train_on_reviewed(method: Method, data: Splits, position: Position) -> None:
    for batch in data.reviewed_batches(position.epoch, position.step, position.steps):
        microbatches = batch.microbatches(method.task.accumulate)
        for microbatch, loss in _accumulated(method, microbatches, method.train_on_reviewed):
            if loss is not None:
                _add(position, {"reviewed/loss": loss}, len(microbatch.index))


def _means(position: Position) -> dict[str, float]:
    return {
        name if "/" in name else f"train/{name}": float(total) / position.counts[name]
        for name, total in _totals(position).items()
    }


def _totals(position: Position) -> dict[str, Tensor]:
    return dict(zip(position.sums, distributed.averaged(list(position.sums.values())), strict=True))


def refuse_non_finite(position: Position, advice: str = "") -> None:
    """Raise if any of this epoch's metrics has become NaN or infinite; `advice` is the method's."""
    for name, value in _totals(position).items():
        if not torch.isfinite(value):
            raise NonFiniteLoss(
                f"'{name}' became {float(value)} in epoch {position.epoch + 1}, step {position.step} of "
                f"{position.steps}; try a learning rate ten times smaller{f', {advice}' if advice else ''}, "
                "and check the inputs for extreme values"
            )

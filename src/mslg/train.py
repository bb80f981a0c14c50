"""The one loop. It knows no method and holds no test set.

for epoch:
    method.begin_epoch
    for batch: method.step → fold its predictions into the trace; method.study reviewed samples, now and then
    method.end_epoch → examine → yield a record
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from .method import Method
from .seeds import seeded
from .splits import Splits
from .trace import Trace

CHECK_EVERY = 20  # steps between looks at the loss: each look waits for the device


class NonFiniteLoss(ArithmeticError):
    """Training has diverged."""


class Examiner(Protocol):
    """Measures a method between epochs."""

    def __call__(self, method: Method, trace: Trace) -> dict[str, float]: ...


@dataclass
class EpochRecord:
    """One epoch in numbers. `metrics` is the same however often the run was interrupted; `seconds` is not."""

    epoch: int
    metrics: dict[str, float]
    seconds: dict[str, float]


@dataclass
class Position:
    """Where training is: everything the loop itself has to remember."""

    trace: Trace
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
            "sums": dict(self.sums),
            "counts": dict(self.counts),
            "trace": self.trace.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to a saved state."""
        self.epoch, self.step, self.clean_step = (int(state[name]) for name in ("epoch", "step", "clean_step"))
        self.sums, self.counts = dict(state["sums"]), dict(state["counts"])
        self.trace.load_state_dict(state["trace"])


def train(
    method: Method,
    data: Splits,
    *,
    epochs: int,
    position: Position | None = None,
    exam: Examiner | None = None,
    after_step: Callable[[Position], None] | None = None,
) -> Iterator[EpochRecord]:
    """Train, yielding a record after each epoch. Progress, files, checkpoints and stopping are the consumer's.

    `position` is where to go on from and is kept up to date; `after_step` sees it after every step, so that a
    checkpoint can be taken inside an epoch too.
    """
    position = position or Position(Trace(method.task.given.to(data.device), method.task.classes))
    method.train()
    while position.epoch < epochs:
        epoch, begun = position.epoch, time.perf_counter()
        method.at(epoch, epoch / epochs)
        if position.step == 0:
            position.sums, position.counts, position.clean_step = {}, {}, 0
            with seeded(data.device, data.seed, "begin epoch", epoch):
                method.begin_epoch(epoch, data)
        excluded = method.excluded()
        position.steps = data.steps(excluded)
        clean = data.clean_batches(epoch, start=position.clean_step, excluded=excluded)
        for batch in data.batches(epoch, start=position.step, excluded=excluded):
            method.at(epoch, (epoch + position.step / position.steps) / epochs)
            with seeded(data.device, data.seed, "step", epoch, position.step):
                result = method.step(batch, clean)
                _study(method, data, position)
            position.trace.fold(batch.index, result.log_probs)
            _add(position, result.scalars, len(batch.index))
            position.step += 1
            position.clean_step = clean.position
            if position.step % CHECK_EVERY == 0 or position.step == position.steps:
                refuse_non_finite(position)
            if after_step is not None and position.step < position.steps:
                after_step(position)
        with seeded(data.device, data.seed, "end epoch", epoch):
            method.end_epoch(epoch, data)
        position.trace.end_epoch(epoch)
        trained = time.perf_counter()
        metrics = _means(position) | {"optim/lr": method.learning_rate()}
        if exam is not None:
            metrics |= exam(method, position.trace)
            method.train()
        position.epoch, position.step = epoch + 1, 0
        examined = time.perf_counter()
        yield EpochRecord(epoch, metrics, {"train": trained - begun, "exam": examined - trained})


def _add(position: Position, scalars: dict[str, Tensor], samples: int) -> None:
    """Sums weighted by batch size: a short last batch must not count as much as a full one."""
    for name, value in scalars.items():
        value = value.detach().double() * samples
        position.sums[name] = position.sums[name] + value if name in position.sums else value
        position.counts[name] = position.counts.get(name, 0) + samples


def _study(method: Method, data: Splits, position: Position) -> None:
    """Reviewed samples are trained on too: their labels are the surest there are."""
    for batch in data.reviewed_batches(position.epoch, position.step, position.steps):
        loss = method.study(batch)
        if loss is not None:
            _add(position, {"reviewed/loss": loss}, len(batch.index))


def _means(position: Position) -> dict[str, float]:
    return {
        name if "/" in name else f"train/{name}": float(total) / position.counts[name]
        for name, total in position.sums.items()
    }


def refuse_non_finite(position: Position) -> None:
    """Raise if any of this epoch's metrics has become NaN or infinite."""
    for name, value in position.sums.items():
        if not torch.isfinite(value):
            raise NonFiniteLoss(
                f"'{name}' became {float(value)} in epoch {position.epoch + 1}, step {position.step} of "
                f"{position.steps}; try a learning rate ten times smaller, a smaller label_rate or look_ahead, "
                "and check the inputs for extreme values"
            )

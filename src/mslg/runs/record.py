"""Consumes the training loop: every epoch is shown and written down before its record is handed on."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing

import torch

from ..data.sample_table import MOST_JOURNAL
from ..data.splits import Splits
from ..runtime import distributed
from ..runtime.signals import Interrupted, postponed
from ..training.cost import work_of
from ..training.evaluation import Evaluation
from ..training.loop import CHECK_EVERY, EpochRecord, Position, refuse_non_finite, train
from ..training.method import Method
from ..training.prediction_history import PredictionHistory
from ..training.progress import Progress
from .folder import Run

SPACING = 3.0  # seconds between the checkpoints of two epochs, at least: one of a small network takes milliseconds


def start_of(method: Method, data: Splits) -> Position:
    """The position before the first step."""
    task = method.task
    return Position(PredictionHistory(task.given.to(data.device), task.classes, folder=task.tables))


def earlier_records(run: Run) -> list[EpochRecord]:
    """The epochs that the run's folder holds."""
    return [EpochRecord(int(line.pop("epoch")), line, {}) for line in run.history()]


def recorded(
    method: Method,
    data: Splits,
    evaluation: Evaluation,
    position: Position,
    *,
    run: Run | None,
    display: Progress,
    checkpoint_seconds: float,
) -> Generator[EpochRecord, None, None]:
    """Train from a position to the end of the method's task, with checkpoints in the run's folder: after every epoch,
    but not one right after the other; after the first and the last one, and wherever the run is stopped."""
    epochs, begun = method.task.epochs, position.epoch
    saved = time.monotonic()
    pending: Callable[[], int] = lambda: 0  # noqa: E731

    def save() -> None:
        nonlocal saved
        if run is not None:
            run.save(method, position)
            saved = time.monotonic()

    def after_step(position: Position) -> None:
        display.advance(method.relative_cost(position.epoch), position)
        stop = _agreed(pending())
        if run is None:
            return
        if stop or _checkpoint_due(method, position, time.monotonic() - saved >= checkpoint_seconds):
            refuse_non_finite(position, method.advice)  # a diverged state must not replace the last good one
            save()
        if stop:
            raise Interrupted(stop)

    with ExitStack() as stack:
        if run is not None:  # without a folder there is nothing to save: a signal ends the process as always
            pending = stack.enter_context(postponed("finishing this step, then a checkpoint"))
        stack.enter_context(closing(display))
        total = work_of(method, data, epochs)
        display.begin(epochs, total, total - work_of(method, data, epochs, position.epoch))
        for record in train(
            method, data, epochs=epochs, position=position, evaluation=evaluation, after_step=after_step
        ):
            display.advance(method.relative_cost(record.epoch), position)
            display.epoch(record)
            if run is not None:
                run.append(record)
            stop = _agreed(pending())
            early = not stop and begun < record.epoch < epochs - 1 and time.monotonic() - saved < SPACING
            if not (early := bool(distributed.broadcast_object(early))):
                save()
            if stop:
                raise Interrupted(stop)
            try:
                yield record
            except GeneratorExit:
                if early:
                    save()
                raise


def _agreed(signal: int) -> int:
    """The highest number of all processes: a signal may reach only some of them."""
    return signal if distributed.ranks() == 1 else int(distributed.gathered(torch.tensor([signal])).max())


def _checkpoint_due(method: Method, position: Position, late: bool) -> bool:
    """Whether the last checkpoint is too old, or the journals of tables in files have grown large. Clocks differ
    between processes, so every few steps all of them follow the main one."""
    if position.step % CHECK_EVERY:
        return late and distributed.ranks() == 1
    tables = [*method.sample_tables(), *position.history.sample_tables()]
    late = late or sum(table.journal_bytes() for table in tables) > MOST_JOURNAL
    return bool(distributed.broadcast_object(late))

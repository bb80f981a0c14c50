"""Carries a prepared run out: consumes the training loop, shows it, writes it down, and stops it when it must."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from ..data.sample_table import MOST_JOURNAL
from ..data.source import Source
from ..data.splits import Splits
from ..issues.ranked_list import judge, label_frame, stated, suggestions
from ..review.gain import next_reviews
from ..runtime import distributed
from ..training.collapse import CollapseWatch
from ..training.cost import in_words, seconds_per_plain_step, work_of
from ..training.evaluation import Evaluation
from ..training.loggers import Logger, Logging, Started
from ..training.loop import CHECK_EVERY, EpochRecord, NonFiniteLoss, Position, refuse_non_finite, train
from ..training.method import Method
from ..training.prediction_history import PredictionHistory
from ..training.progress import Closing, Progress
from .folder import Run
from .results import finite, remembered, summarise, write_results

log = logging.getLogger("mslg")

SHOWN = 200  # classes up to which a transition matrix is written down: beyond, nobody reads it
# What runs of earlier versions do not tell of themselves.
LATER = {"train": {"precision": "float32", "accumulate": 1, "sync_batch_norm": False}}
LONG = 120  # seconds: a run longer than this announces its cost before it starts


@dataclass
class Result:
    """What came out of a run."""

    model: nn.Module
    history: pd.DataFrame  # one row an epoch
    summary: dict[str, Any]
    classes: tuple[str, ...]
    method: Method = field(repr=False)
    run: Run | None
    make_labels: Callable[[], pd.DataFrame] = field(repr=False)
    choose_next: Callable[..., pd.DataFrame] = field(repr=False)

    @cached_property
    def labels(self) -> pd.DataFrame:
        """One row a training sample: given, predicted and suggested label, quality, rank. Made when first asked for."""
        return self.make_labels()

    @cached_property
    def soft_labels(self) -> np.ndarray[Any, Any]:
        """(training samples, classes), rows in the order of `labels`."""
        return np.stack(self.labels["soft_label"].to_list())

    def review_next(self, count: int = 50) -> pd.DataFrame:
        """The samples whose review would help the clean loss most: id, rank, given_label, suggested_label, gain."""
        return self.choose_next(self.labels, count=count)


def execute(
    learner: Method,
    data: Splits,
    source: Source,
    evaluation: Evaluation,
    resolved: dict[str, Any],
    *,
    folder: Path | None,
    files: Mapping[str, bytes] | None = None,
    resume: bool,
    force: bool,
    checkpoint_seconds: float,
    time_budget: float | None,
    display: Progress,
    loggers: str | Logger | Sequence[str | Logger] = (),
    fdr: float | None = None,
    announce: Callable[[], None] | None = None,
    rebuild: Callable[[], Method] | None = None,
) -> Result:
    """Train to the end, or to where the time is up; with a folder, everything is written there. Something that is to
    come after it is announced with the cost of the run, which is then not marked as done. `rebuild` makes the learner
    anew: of several processes one finishes the run alone, with what all have learned."""
    logs = Logging.named(loggers if distributed.is_main_process() else (), folder=folder)
    epochs = int(resolved["train"]["epochs"])
    position = _start(learner, source, data)
    run, records = None, []
    if folder is not None:
        if resume and distributed.broadcast_object((folder / "config.toml").exists()):
            run = Run.open(folder)
            _refuse_other_settings(run, resolved)
            if run.load(learner, position):
                log.info("going on from epoch %d, step %d", position.epoch + 1, position.step)
            records = [EpochRecord(int(line.pop("epoch")), line, {}) for line in run.history()]
        else:
            run = Run.create(folder, resolved, files=files, force=force)
    _announce(learner, data, epochs, position)
    if announce is not None:
        announce()
    watch = CollapseWatch(source.label[data.train.index], len(source.classes))
    begun = time.monotonic()
    stopped = False
    recording = recorded(
        learner, data, evaluation, position, run=run, display=display, checkpoint_seconds=checkpoint_seconds
    )
    try:
        with logs, closing(recording):
            if position.epoch < epochs:
                logs.begin(Started(folder, resolved, [(record.epoch, record.metrics) for record in records]))
            for record in recording:
                records.append(record)
                watch(record)
                logs.log(record.epoch, record.metrics)
                late = time_budget is not None and time.monotonic() - begun > time_budget
                if distributed.broadcast_object(late) and position.epoch < epochs:
                    stopped = True
                    break
    except NonFiniteLoss as error:
        if run is not None:
            run.write_json("summary.json", {"state": "failed", "error": str(error)})
        raise
    learner.eval()
    if evaluation.test is not None and evaluation.confusion is None:
        evaluation(
            learner, position.history
        )  # resumed after the last epoch: no epoch of this process has looked at the test
    if stopped:
        log.warning("stopped after epoch %d of %d: the time budget is used up; resume to go on", position.epoch, epochs)
    conclude = partial(
        concluded, source, evaluation, records, run, stopped=stopped, fdr=fdr, finish=announce is None and not stopped
    )
    if distributed.ranks() == 1:
        return conclude(learner, data, position)
    assert run is not None
    assert rebuild is not None
    return _concluded_by_first(conclude, learner, data, source, run, rebuild)


def concluded(
    source: Source,
    evaluation: Evaluation,
    records: list[EpochRecord],
    run: Run | None,
    learner: Method,
    data: Splits,
    position: Position,
    *,
    stopped: bool,
    fdr: float | None,
    finish: bool,
) -> Result:
    """What a trained method says of its labels, and all results; with a run, written into its folder."""
    summary = summarise(records, evaluation, data, state="stopped" if stopped else "done")
    judgement = judge(source, data, learner, position.history, fdr=fdr)
    suggested = suggestions(source, data, position.history, judgement)
    summary["label_errors"] = stated(source, data, judgement, suggested, fdr)
    if len(source.classes) <= SHOWN:
        summary["transition"] = judgement.evidence.transition().tolist()
    summary["label_issues"] = int((suggested != source.label[data.train.index]).sum())
    if (right := evaluation.right(suggested)) is not None and "last" in summary:
        summary["last"] |= finite({"suggested/accuracy": right})
    if run is not None:
        summary |= remembered(run)
        write_results(run, learner, data, source, position, judgement, summary)
        if finish:
            run.finish()
    history = pd.DataFrame([{"epoch": record.epoch, **record.metrics} for record in records])
    make_labels = partial(label_frame, source, data, learner, position.history, judgement)
    choose_next = partial(next_reviews, learner.deployed(), data, source)
    return Result(learner.deployed(), history, summary, source.classes, learner, run, make_labels, choose_next)


def _concluded_by_first(
    conclude: Callable[[Method, Splits, Position], Result],
    learner: Method,
    data: Splits,
    source: Source,
    run: Run,
    rebuild: Callable[[], Method],
) -> Result:
    """The first process puts together what all have learned, from the last checkpoint, and finishes the run with it."""
    result = None
    if distributed.is_main_process():
        with distributed.single_process():
            whole, everything = rebuild(), replace(data, rank=0, ranks=1)
            position = _start(whole, source, everything)
            run.load(whole, position)
            result = conclude(whole.eval(), everything, position)
            result.make_labels = _alone(result.make_labels)
            result.choose_next = _alone(result.choose_next)
    distributed.barrier()
    summary = distributed.broadcast_object(None if result is None else result.summary)
    if result is not None:
        result.model, result.method = learner.deployed(), learner
        return result
    history = pd.DataFrame([{"epoch": line["epoch"], **line} for line in run.history()])
    return Result(learner.deployed(), history, summary, source.classes, learner, run, _elsewhere, _elsewhere)


def _alone(function: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    def called(*args: Any, **kwargs: Any) -> pd.DataFrame:
        with distributed.single_process():
            return function(*args, **kwargs)

    return called


def _elsewhere(*args: Any, **kwargs: Any) -> pd.DataFrame:
    raise RuntimeError(
        "the labels are with the first of the processes (rank 0); read labels.parquet in the run's folder"
    )


def _start(learner: Method, source: Source, data: Splits) -> Position:
    return Position(PredictionHistory(source.label.to(data.device), len(source.classes), folder=learner.task.tables))


def recorded(
    learner: Method,
    data: Splits,
    evaluation: Evaluation,
    position: Position,
    *,
    run: Run | None,
    display: Progress,
    checkpoint_seconds: float,
) -> Generator[EpochRecord, None, None]:
    """Train to the end of the learner's task: each epoch is shown and written down before its record is handed on."""
    epochs = learner.task.epochs
    saved = time.monotonic()

    def after_step(position: Position) -> None:
        nonlocal saved
        display.advance(learner.relative_cost(position.epoch), position)
        if run is not None and _due(learner, position, time.monotonic() - saved >= checkpoint_seconds):
            refuse_non_finite(position)  # a diverged state must not replace the last good one
            run.save(learner, position)
            saved = time.monotonic()

    with Closing(display):
        total = work_of(learner, data, epochs)
        display.begin(epochs, total, total - work_of(learner, data, epochs, position.epoch))
        for record in train(
            learner, data, epochs=epochs, position=position, evaluation=evaluation, after_step=after_step
        ):
            display.advance(learner.relative_cost(record.epoch), position)
            display.epoch(record)
            if run is not None:
                run.append(record)
                run.save(learner, position)
                saved = time.monotonic()
            yield record


def _due(learner: Method, position: Position, late: bool) -> bool:
    """Whether it is time for a checkpoint: the last one is long ago, or the journals of tables in files have grown
    large. Several processes have several clocks: now and then they ask the first."""
    if position.step % CHECK_EVERY:
        return late and distributed.ranks() == 1
    late = late or learner.journal_bytes() + position.history.journal_bytes() > MOST_JOURNAL
    return bool(distributed.broadcast_object(late))


def _announce(method: Method, data: Splits, epochs: int, position: Position) -> None:
    estimate = seconds_per_plain_step(method, data) * work_of(method, data, epochs, position.epoch)
    level = logging.WARNING if estimate > LONG else logging.INFO
    log.log(level, "about %s of training ahead (%d epochs)", in_words(estimate), epochs - position.epoch)


def _refuse_other_settings(run: Run, resolved: Mapping[str, Any]) -> None:
    before = run.config
    for table in ("data", "noise", "network", "method", "train"):
        then, now = {**LATER.get(table, {}), **before.get(table, {})}, resolved[table]
        for key in (*then, *now):
            old, value = then.get(key), now.get(key)
            if key == "fdr":  # how long the list is: no matter of training
                continue
            if _as_toml(old) != _as_toml(value):
                raise ValueError(
                    f"{run.path} was started with {table}.{key} = {old!r}, now it is {value!r}; resume with the same "
                    "data and settings, or start a new run in another folder"
                )


def _as_toml(value: Any) -> Any:
    """TOML knows only lists."""
    return list(value) if isinstance(value, tuple) else value

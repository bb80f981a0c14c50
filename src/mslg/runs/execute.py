"""Carries out a prepared run: trains, judges the labels, writes the results, and compares with the controls."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..data.splits import Splits
from ..issues.flagging import Flagging
from ..issues.from_training import rank_training_labels
from ..issues.memorised import memorised
from ..issues.ranked_list import LabelIssues
from ..runtime import checksums, distributed, locks
from ..runtime.durations import range_in_words
from ..runtime.machine import versions
from ..runtime.memory import keep_freed_memory
from ..runtime.threads import may_choose, using_threads
from ..training.collapse import CollapseWatch
from ..training.cost import duration_range, faster_threads, work_of
from ..training.evaluation import Evaluation
from ..training.loggers import Logging, Started
from ..training.loop import EpochRecord, NonFiniteLoss, Position
from ..training.method import Method
from ..training.progress import Progress, Silent, for_terminal
from .controls.comparison import Comparison
from .files_read import FilesRead
from .folder import Run, RunMismatch, refuse_place
from .labels_learned import labels_learned
from .record import earlier_records, recorded, start_of
from .results import finite, remembered, summarise, write_results
from .settings import TABLES, Options, Settings

log = logging.getLogger("mslg")

SHOWN = 200  # classes up to which a transition matrix is written down: beyond, nobody reads it
LONG = 120  # seconds: a run longer than this announces its cost before it starts


@dataclass
class Prepared:
    """A run that is ready to be carried out. Everything that can fail has been checked, and nothing is written yet."""

    settings: Settings
    record: dict[str, dict[str, Any]]  # the settings as used, for config.toml
    data: Splits
    evaluation: Evaluation
    new_method: Callable[[], Method]
    method: Method
    used: Mapping[str, Any]  # what the method's constructor was given
    files: dict[str, bytes] = field(default_factory=dict)  # written into the run's folder at its start


@dataclass
class Outcome:
    """What came out of a run."""

    method: Method
    data: Splits
    position: Position
    issues: LabelIssues | None  # None if several processes trained: they are in labels.parquet
    records: list[EpochRecord]
    summary: dict[str, Any]
    run: Run | None


def execute(prepared: Prepared, options: Options) -> Outcome:
    """Train to the end, or until the time budget is used up. With an output folder everything is written there."""
    folder = None if options.output is None else Path(options.output)
    logs = Logging.named(options.loggers if distributed.is_main_process() else (), folder=folder)
    if not prepared.method.saves_memory:
        keep_freed_memory()
    with _alone(folder, options), using_threads(_threads(prepared, options, folder)):
        return _execute(prepared, options, folder, logs)


@contextmanager
def _alone(folder: Path | None, options: Options) -> Iterator[None]:
    """Hold the lock on the run's folder. The main process does, and all processes learn if it cannot."""
    problem: OSError | None = None
    with ExitStack() as stack:
        if folder is not None and distributed.is_main_process():
            try:
                if not (options.resume and (folder / "config.toml").exists()):
                    refuse_place(folder, force=options.force)  # before a lock is put into it
                if stale := stack.enter_context(locks.writing(folder)):
                    log.info(stale)
            except OSError as error:
                problem = error
        if (found := distributed.broadcast_object(problem)) is not None:
            raise found
        yield


def _threads(prepared: Prepared, options: Options, folder: Path | None) -> int | None:
    """How many threads to compute with: a resumed run, as many as before, since rounding depends on it."""
    if options.resume and folder is not None and (folder / "config.toml").exists():
        recorded = Run.open(folder).config.get("threads")
        return int(recorded) if recorded is not None and may_choose() else None
    return faster_threads(prepared.method, prepared.data)


def _execute(prepared: Prepared, options: Options, folder: Path | None, logs: Logging) -> Outcome:
    begun = time.monotonic()
    position = start_of(prepared.method, prepared.data)
    run, records = _open(prepared, folder, options, position)
    _announce(prepared, position)
    comparison = None
    if options.compare:
        test = prepared.evaluation.test
        comparison = Comparison(prepared.method, prepared.used, prepared.data, prepared.record, folder, test)
        comparison.announce(budget=options.time_budget)
    stopped = _train(prepared, options, logs, run, records, position, begun)
    outcome = _conclude(prepared, run, records, position, stopped=stopped)
    if comparison is not None and not stopped:
        left = None if options.time_budget is None else options.time_budget - (time.monotonic() - begun)
        display = partial(for_terminal, lines=1) if options.progress is True else lambda name: Silent()
        comparison.complete(
            outcome.summary,
            run,
            display=display,
            checkpoint_seconds=60 * options.checkpoint_minutes,
            time_left=left,
        )
    if run is not None and not stopped:
        run.finish()
    if "labels_learned" in outcome.summary and distributed.is_main_process():
        log.info(outcome.summary["labels_learned"]["sentence"])  # last: the controls may have taken a while
    return outcome


def _open(
    prepared: Prepared, folder: Path | None, options: Options, position: Position
) -> tuple[Run | None, list[EpochRecord]]:
    """The run's folder, new or resumed, and the epochs that are already in it."""
    if folder is None:
        return None, []
    data = prepared.data
    files_read = FilesRead([data.train, data.clean, data.select, data.report, prepared.evaluation.test])
    if not (options.resume and distributed.broadcast_object((folder / "config.toml").exists())):
        run = Run.create(folder, prepared.record, files=prepared.files, force=options.force)
        run.files_read = files_read
        return run, []
    run = Run.open(folder)
    run.files_read = files_read
    _refuse_other_settings(run, prepared.record)
    _warn_of_versions(run)
    checksums.check(folder, "division.parquet", "decisions.csv")
    if run.load(prepared.method, position):
        log.info("resuming from epoch %d, step %d", position.epoch + 1, position.step)
    return run, earlier_records(run)


def _train(
    prepared: Prepared,
    options: Options,
    logs: Logging,
    run: Run | None,
    records: list[EpochRecord],
    position: Position,
    begun: float,
) -> bool:
    """Train, adding to the records. Returns whether the time budget has stopped it."""
    method, data, evaluation = prepared.method, prepared.data, prepared.evaluation
    epochs, folder = method.task.epochs, None if run is None else run.path
    watch = CollapseWatch(data.source.label[data.train.index], len(data.source.classes), advice=method.advice)
    recording = recorded(
        method,
        data,
        evaluation,
        position,
        run=run,
        display=_display(prepared, options),
        checkpoint_seconds=60 * options.checkpoint_minutes,
    )
    stopped = False
    try:
        with logs, closing(recording):
            if position.epoch < epochs:
                logs.begin(Started(folder, prepared.record, [(r.epoch, r.metrics) for r in records]))
            for record in recording:
                records.append(record)
                watch(record)
                logs.log(record.epoch, record.metrics)
                late = options.time_budget is not None and time.monotonic() - begun > options.time_budget
                if distributed.broadcast_object(late) and position.epoch < epochs:
                    stopped = True
                    break
    except NonFiniteLoss as error:
        if run is not None:
            run.write_json("summary.json", {"state": "failed", "error": str(error)})
        raise
    method.eval()
    if evaluation.test is not None and evaluation.confusion is None:
        evaluation(method, position.history)  # resumed after the last epoch: this process has not seen the test set yet
    if stopped:
        log.warning(
            "stopped after epoch %d of %d: the time budget is used up; resume to continue", position.epoch, epochs
        )
    return stopped


def _display(prepared: Prepared, options: Options) -> Progress:
    if not distributed.is_main_process() or options.progress is False:
        return Silent()
    if options.progress is True:
        return for_terminal(str(prepared.record["method"]["name"]))
    display: Progress = options.progress
    return display


def _conclude(
    prepared: Prepared, run: Run | None, records: list[EpochRecord], position: Position, *, stopped: bool
) -> Outcome:
    """Judge the labels and write the results. Of several processes the main one does it, with what all have learned,
    from the last checkpoint."""
    if distributed.ranks() == 1:
        return _judged(prepared, prepared.method, prepared.data, run, records, position, stopped=stopped)
    assert run is not None
    outcome = None
    whole = replace(prepared.data, rank=0, ranks=1)
    if distributed.is_main_process():
        with distributed.single_process():
            method = prepared.new_method()
            position = start_of(method, whole)
            run.load(method, position)
            outcome = _judged(prepared, method.eval(), whole, run, records, position, stopped=stopped)
    distributed.barrier()
    summary = distributed.broadcast_object(None if outcome is None else outcome.summary)
    return Outcome(prepared.method, whole, position, None, records, summary, run)


def _judged(
    prepared: Prepared,
    method: Method,
    data: Splits,
    run: Run | None,
    records: list[EpochRecord],
    position: Position,
    *,
    stopped: bool,
) -> Outcome:
    summary = summarise(records, prepared.evaluation, data, state="stopped" if stopped else "done")
    flagging = Flagging.parse(prepared.settings.train.flag, prepared.settings.train.fdr)
    issues = rank_training_labels(method, data, position.history, flagging=flagging)
    summary["label_errors"] = issues.error_rate_summary()
    told = memorised(position.history, data, issues.evidence, method)
    if told.warning is not None:
        summary["memorised"] = told.warning
    if told.unknown is not None:
        summary["memorised_unknown"] = told.unknown
    if len(data.source.classes) <= SHOWN:
        summary["transition"] = issues.posterior.transition().tolist()
    summary["label_issues"] = int(issues.flagged.sum())
    if (right := prepared.evaluation.right(issues.suggested)) is not None and "last" in summary:
        summary["last"] |= finite({"suggested/accuracy": right})
    if (learned := labels_learned(method, data.train.index, records)) is not None:
        summary["labels_learned"] = learned
    if run is not None:
        summary |= remembered(run)
        write_results(run, method, data, position.history, issues, summary)
    return Outcome(method, data, position, issues, records, summary, run)


def _announce(prepared: Prepared, position: Position) -> None:
    """Say what will be trained, and how long it takes."""
    method, data, record = prepared.method, prepared.data, prepared.record
    epochs = method.task.epochs
    low, high = duration_range(method, data, work_of(method, data, epochs, position.epoch))
    features = record["data"].get("features")
    network = str(record["network"].get("name") or record["network"].get("class", "the network"))
    log.log(
        logging.WARNING if low > LONG else logging.INFO,
        "plan: train %s%s with %s for %d epochs on %s noisy %s: %s",
        network,
        "" if features is None else f" on features of {features}",
        record["method"]["name"],
        epochs - position.epoch,
        f"{len(data.train):,}",
        "samples, without clean ones" if data.clean is None else f"and {_clean_count(data):,} clean samples",
        range_in_words(low, high),
    )


def _clean_count(data: Splits) -> int:
    return sum(len(part) for part in (data.clean, data.select, data.report) if part is not None)


def _refuse_other_settings(run: Run, record: Mapping[str, Any]) -> None:
    before = run.config
    for table in TABLES:
        then, now = before.get(table, {}), record[table]
        for key in (*then, *now):
            old, value = then.get(key), now.get(key)
            # the length of the list, and what the factory is called: not training
            if key in ("fdr", "flag", "made_by"):
                continue
            if _as_toml(old) != _as_toml(value):
                raise RunMismatch(
                    f"{run.path} was started with {table}.{key} = {old!r}, now it is {value!r}; resume with the same "
                    "data and settings, or start a new run in another folder"
                )


def _warn_of_versions(run: Run) -> None:
    before, now = run.config.get("versions", {}), versions()
    changed = [f"{name} {before.get(name)} → {now[name]}" for name in now if before.get(name) != now[name]]
    if changed:
        log.warning(
            "%s was started with other versions (%s): it may end differently than without the interruption",
            *(run.path, ", ".join(changed)),
        )


def _as_toml(value: Any) -> Any:
    """TOML knows only lists, and leaves out what is None or empty."""
    return list(value) if isinstance(value, tuple) else value or None if isinstance(value, dict) else value

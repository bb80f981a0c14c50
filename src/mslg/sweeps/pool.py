"""Worker processes that run cells: one core each, replaced when they die."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ..runtime.machine import processors
from .grid import Cell
from .ledger import Finished, finished

log = logging.getLogger("mslg")

TRIES = 2  # a cell whose process died is retried once, from its checkpoint
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # read when numpy and torch are imported


@dataclass(frozen=True)
class Job:
    """A cell, and what this machine adds to it."""

    cell: Cell
    folder: Path | None  # of the run
    places: dict[str, str | None]
    device: str = "auto"
    workers: int = 0  # processes that decode images
    trust_code: bool = False  # whether code that the recipe names may be imported


@dataclass(frozen=True)
class Event:
    """News of a cell: it has started, finished an epoch, finished the run, or failed with an error."""

    cell: Cell
    epoch: int = 0
    epochs: int = 0
    finished: Finished | None = None
    error: str | None = None


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    job: Job | None = None


def default_processes(device: str) -> int:
    """Parallel runs: one on a GPU, which several would have to share, otherwise one per core."""
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    return 1 if device.startswith("cuda") else processors()


def run_all(jobs: Sequence[Job], processes: int) -> Generator[Event, None, None]:
    """Run the jobs in this many processes, and yield events as they happen."""
    context = multiprocessing.get_context("spawn")
    waiting = list(reversed(jobs))
    tried: dict[tuple[str, str, int], int] = {}
    daemon = not any(job.workers for job in jobs)  # a daemon must not have child processes
    workers = [_start(context, daemon) for _ in range(min(processes, len(jobs)))]
    try:
        for worker in workers:
            _hand_over(worker, waiting)
        while any(worker.job is not None for worker in workers):
            ready = wait([worker.pipe for worker in workers if worker.job is not None])
            for number, worker in enumerate(workers):
                if worker.job is None or worker.pipe not in ready:
                    continue
                job = worker.job
                try:
                    event: Event = worker.pipe.recv()
                except (EOFError, OSError):  # the process is gone: out of memory, or killed
                    worker.process.join()
                    code = worker.process.exitcode
                    count = tried[job.cell.key] = tried.get(job.cell.key, 0) + 1
                    if count < TRIES:
                        log.warning("the process of %s died (exit code %s); retrying", job.cell.name, code)
                        waiting.append(job)
                    else:
                        yield Event(job.cell, error=f"its process died (exit code {code}), {TRIES} times")
                    workers[number] = _start(context, daemon)
                    _hand_over(workers[number], waiting)
                    continue
                yield event
                if event.finished is not None or event.error is not None:
                    _hand_over(worker, waiting)
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()


def _start(context: Any, daemon: bool) -> _Worker:
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=daemon)
    with _one_core(), _deaf_to_interrupts():  # from the start: its imports take seconds
        process.start()
    there.close()
    return _Worker(process, here)


@contextmanager
def _one_core() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ctrl-C is handled by the parent, which stops its workers. Processes started now inherit this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _hand_over(worker: _Worker, waiting: list[Job]) -> None:
    worker.job = waiting.pop() if waiting else None
    with suppress(OSError):  # it died while idle: noticed like any other death
        worker.pipe.send(worker.job)


def _serve(pipe: Connection) -> None:
    """The loop of a worker process, until it receives None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    logging.getLogger("mslg").setLevel(logging.ERROR)
    while (job := pipe.recv()) is not None:
        try:
            pipe.send(Event(job.cell, finished=run_cell(job, pipe)))
        except Exception as error:
            if os.environ.get("MSLG_DEBUG"):
                traceback.print_exc()
            pipe.send(Event(job.cell, error=f"{type(error).__name__}: {error}"))
        except KeyboardInterrupt:  # the sweep ends: the run has saved a checkpoint
            return


def _end_with_parent() -> None:
    """If the sweep itself is killed, its workers must stop writing: the next sweep takes over their folders."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


class _Told:
    """Progress that is sent to the parent."""

    def __init__(self, cell: Cell, pipe: Connection) -> None:
        self.cell, self.pipe, self.epochs = cell, pipe, 0

    def begin(self, epochs: int, work: float, done: float) -> None:
        self.epochs = epochs
        self.pipe.send(Event(self.cell, 0, epochs))

    def advance(self, work: float, position: Any) -> None: ...

    def epoch(self, record: Any) -> None:
        self.pipe.send(Event(self.cell, record.epoch + 1, self.epochs))

    def close(self) -> None: ...


def run_cell(job: Job, pipe: Connection) -> Finished:
    """One run, gone on with if it had been begun."""
    from ..fitting.fit import fit_settings
    from ..registry import import_only
    from ..runs.folder import RunMismatch
    from ..runtime.checksums import DamagedFile
    from ..training.loop import NonFiniteLoss

    pipe.send(Event(job.cell))
    begun = time.perf_counter()
    if job.folder is not None and job.folder.exists() and not (job.folder / "config.toml").exists():
        shutil.rmtree(job.folder)  # killed before the run had begun
    settings = job.cell.placed(**job.places)

    def run(**how: bool) -> Any:
        progress = _Told(job.cell, pipe)
        with import_only(None if job.trust_code else ()):
            return fit_settings(
                settings, workers=job.workers, output=job.folder, device=job.device, progress=progress, **how
            )

    try:
        try:
            result = run(resume=job.folder is not None)
        except RunMismatch:
            # The folder's name says that the cell is the same: the data, or its location, has changed since.
            result = run(force=True)
        except DamagedFile as error:
            assert job.folder is not None
            log.warning("%s is started over: %s", job.cell.name, error)
            shutil.rmtree(job.folder)
            result = run()
    except NonFiniteLoss:
        return finished(job.cell, {"state": "failed"}, [], time.perf_counter() - begun)
    history = result.history.to_dict("records")
    return finished(job.cell, result.summary, history, time.perf_counter() - begun)

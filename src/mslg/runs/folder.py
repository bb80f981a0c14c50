"""A run is a folder of readable files, from which an interrupted run can be resumed."""

from __future__ import annotations

import json
import logging
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

from ..runtime import checksums, distributed, locks, toml
from ..runtime.checksums import DamagedFile
from ..runtime.files import PARTIAL, keep_as, regular, write_atomically
from ..runtime.machine import versions
from ..training.loop import EpochRecord, Position
from ..training.method import Method
from .checkpoint import load_state, save_state, to_device
from .files_read import FilesRead
from .finished import FORMAT, read_config, read_json, require_finished
from .sharded_checkpoint import are_shards, delete_shards, load_shards, save_shards

log = logging.getLogger("mslg")

INCOMPLETE = ".incomplete"  # in a folder that is being created or replaced, until it has a config.toml
LINES = ("metrics", "timing")  # files of one line per epoch


class RunMismatch(ValueError):
    """A run cannot be resumed, because its data or settings are not those it was started with."""


class Run:
    """The folder of one training run.

    config.toml      every setting, the number of threads, the versions and the fingerprint of the data
    checksums.json   of the files that the run has written: `mslg verify` compares them, and so does whoever reads one
    metrics.jsonl    one line per epoch, identical to the byte however often the run was interrupted
    timing.jsonl     seconds per epoch
    checkpoint/      the state to resume from
    division.parquet the clean samples: their verified labels, and which part each is in
    decisions.csv    the reviewer's decisions that the run was started with
    controls/        the controls that the run is compared with: numbers and predictions for held-out samples
    model.safetensors, model.json, labels.parquet, classes.json, summary.json, done: the results
    example.safetensors  a few training inputs, to export the model with
    vocabulary.json  for texts: the vocabulary that they were encoded with
    suspects.parquet, clean_samples.parquet: the worst labels with their previews, and similar clean samples
    audit.parquet    samples drawn at random, with their previews, to check how many labels are wrong
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._config: dict[str, Any] | None = None
        self._epochs: list[dict[str, float]] = []  # the metrics of every epoch so far: part of the checkpoint
        self._writing: set[str] = set()
        self.files_read = FilesRead()

    @classmethod
    def create(
        cls, path: Path, config: Mapping[str, Any], *, files: Mapping[str, bytes] | None = None, force: bool = False
    ) -> Run:
        """Create the folder, with files that the run starts with. An existing run is overwritten only with `force`. The
        main process writes all files but checkpoints."""
        if not distributed.is_main_process():
            distributed.barrier()
            return cls(path)
        refuse_place(path, force=force)
        path.mkdir(parents=True, exist_ok=True)
        _clear(path)
        run = cls(path)
        for name, content in (files or {}).items():
            write_atomically(path / name, content)
        for name in LINES:
            run._write_lines(name, [])
        text = toml.dumps(
            {"format_version": FORMAT, "threads": torch.get_num_threads(), **config, "versions": versions()}
        )
        write_atomically(path / "config.toml", text.encode())  # last: with it the folder is a run
        checksums.record(path, ["config.toml", *(files or {})])
        (path / INCOMPLETE).unlink()
        distributed.barrier()
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open an existing folder."""
        if not (path / "config.toml").exists():
            raise FileNotFoundError(f"{path} is not a run's folder: it has no config.toml; start a run with `mslg fit`")
        return cls(path)

    @property
    def config(self) -> dict[str, Any]:
        """The settings the run was started with."""
        if self._config is None:
            self._config = read_config(self.path)
        return self._config

    @property
    def finished(self) -> bool:
        """Whether all results are written."""
        return (self.path / "done").exists()

    def require_finished(self, *results: str) -> None:
        """Raise an error unless the run is finished or, if files are named, has at least these results."""
        require_finished(self.path, *results)

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint" / "state.safetensors"

    @property
    def previous_checkpoint(self) -> Path:
        """The one before, in case the last is damaged; deleted when the run is finished."""
        return self.path / "checkpoint" / "previous.safetensors"

    def save(self, method: Method, position: Position) -> None:
        """Write a checkpoint; the previous one is kept until it is complete. Each process writes its own shard."""
        folder = self.checkpoint.parent
        folder.mkdir(exist_ok=True)
        tables = [*method.sample_tables(), *position.history.sample_tables()]
        for table in tables:
            table.begin_checkpoint()
        state = {"method": method.sharded_state(), "position": position.state_dict(), "epochs": self._epochs}
        state["files"] = self.files_read.state()
        if distributed.ranks() > 1:
            save_shards(folder, state)
            if distributed.is_main_process():
                for single in (self.checkpoint, self.previous_checkpoint):  # from an earlier single-process run
                    single.unlink(missing_ok=True)
        else:
            if not any(table.path for table in tables):  # a table in a file can be rolled back to the last one only
                keep_as(self.checkpoint, self.previous_checkpoint)
            save_state(self.checkpoint, state)
            delete_shards(folder)
        for table in tables:
            table.end_checkpoint()

    def load(self, method: Method, position: Position) -> bool:
        """Restore the last checkpoint, if there is one; metrics written after it are dropped."""
        if distributed.is_main_process():
            for left in self.path.rglob(PARTIAL):
                if left.is_file():  # a folder with such a name is not ours
                    left.unlink(missing_ok=True)
        state = self._last_state()
        if state is None:
            self._keep_epochs()
            return False
        try:
            method.load_state_dict(to_device(state["method"], method.task.device))
            position.load_state_dict(to_device(state["position"], method.task.device))
        except (RuntimeError, KeyError) as error:
            raise RunMismatch(
                f"the checkpoint of {self.path} does not fit this network and these settings "
                f"({' '.join(str(error).split())[:300]}); resume with the same ones, or start a new run"
            ) from error
        self.files_read.restore(state.get("files", ()))
        self._epochs = [dict(line) for line in state["epochs"]]
        self._keep_epochs()
        return True

    def _last_state(self) -> dict[str, Any] | None:
        if are_shards(self.checkpoint.parent):
            return load_shards(self.checkpoint.parent)
        if self.checkpoint.exists():
            try:
                return load_state(self.checkpoint)
            except DamagedFile as error:
                raise DamagedFile(f"{error}; {self._instead_of_checkpoint()}") from error
        if self.previous_checkpoint.exists():
            log.warning("%s has no last checkpoint; the one before it is used", self.path)
            return load_state(self.previous_checkpoint)
        if len(_lines(self.path / "metrics.jsonl")) > 1:  # one epoch may be written down before its checkpoint
            log.warning("%s has no checkpoint, although it has trained: it starts from the beginning", self.path)
        return None

    def _instead_of_checkpoint(self) -> str:
        """What to do if the last checkpoint cannot be read."""
        if self.previous_checkpoint.exists():
            with suppress(ValueError, OSError):
                position = load_state(self.previous_checkpoint)["position"]
                where = f"epoch {int(position['epoch']) + 1}, step {int(position['step'])}"
                return f"the checkpoint before it is intact: delete this one, and the run resumes from {where}"
        return f"no earlier checkpoint is left: start over with --force, or delete {self.checkpoint.parent} and resume"

    def append(self, record: EpochRecord) -> None:
        """Record an epoch."""
        if not distributed.is_main_process():
            return
        self._epochs = [*self._epochs[: record.epoch], {"epoch": record.epoch, **record.metrics}]
        for name, values in {"metrics": record.metrics, "timing": record.seconds}.items():
            with (self.path / f"{name}.jsonl").open("a") as file:
                file.write(json.dumps({"epoch": record.epoch, **values}) + "\n")

    def history(self, name: str = "metrics") -> list[dict[str, float]]:
        """The epochs recorded so far."""
        return [json.loads(line) for line in _lines(self.path / f"{name}.jsonl")]

    @contextmanager
    def writing(self, *names: str) -> Iterator[None]:
        """Inside, these files are written; afterwards they have checksums."""
        new = [name for name in names if name not in self._writing]
        if not new or not distributed.is_main_process():
            yield
            return
        checksums.forget(self.path, new)
        self._writing.update(new)
        try:
            yield
        finally:
            self._writing.difference_update(new)
        checksums.record(self.path, new)

    def write_json(self, name: str, value: Mapping[str, Any], *, every_epoch: bool = False) -> None:
        """Write a small result; one that is written in every epoch gets its checksum when the run is finished."""
        if not distributed.is_main_process():
            return
        text = json.dumps({"format_version": FORMAT, **value}, indent=1, ensure_ascii=False)
        with nullcontext() if every_epoch else self.writing(name):
            write_atomically(self.path / name, f"{text}\n".encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a small result."""
        checksums.check(self.path, name)
        return read_json(self.path / name)

    def finish(self, *written_every_epoch: str) -> None:
        """Mark the run as complete: the last thing written."""
        if distributed.is_main_process():
            self.previous_checkpoint.unlink(missing_ok=True)
            checksums.record(self.path, [*(f"{name}.jsonl" for name in LINES), *written_every_epoch])
            write_atomically(self.path / "done", b"")
        distributed.barrier()

    def _keep_epochs(self) -> None:
        """Write the metrics that the checkpoint holds; times have been written down only once, and are kept."""
        if distributed.is_main_process():
            checksums.forget(self.path, [f"{name}.jsonl" for name in LINES])
            self._write_lines("metrics", [json.dumps(line) for line in self._epochs])
            self._write_lines("timing", _lines(self.path / "timing.jsonl")[: len(self._epochs)])
        distributed.barrier()

    def _write_lines(self, name: str, lines: list[str]) -> None:
        header = json.dumps({"format_version": FORMAT, "kind": name})
        write_atomically(self.path / f"{name}.jsonl", "".join(f"{line}\n" for line in [header, *lines]).encode())


def refuse_place(path: Path, *, force: bool) -> None:
    """Raise unless a run may be created in this folder: an existing run is replaced only with `force`, and nothing else
    ever. What a killed process has left of a run that it was creating or replacing is in nobody's way."""
    if not path.exists():
        return
    if not path.is_dir():
        raise FileExistsError(f"{path} is a file; name a folder for the run")
    names = {entry.name for entry in path.iterdir()} - {locks.NAME}
    if not names or (INCOMPLETE in names and "config.toml" not in names):
        return
    if not force:
        what = "a finished run" if "done" in names else "an existing folder"
        raise FileExistsError(
            f"{path} is {what}; resume it with resume=True (--resume), replace it with force=True (--force), or name "
            "another folder"
        )
    if not _is_run(path):
        raise FileExistsError(f"{path} is not a run's folder (no config.toml of a run) and will not be deleted")


def _is_run(path: Path) -> bool:
    """Whether a run created this folder: no other may be deleted."""
    try:
        config = tomllib.loads(regular(path / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return "format_version" in config and "mslg" in config.get("versions", {})


def _clear(path: Path) -> None:
    """Delete an earlier run. Killed in the middle, it leaves the mark that says so to the next."""
    (path / INCOMPLETE).touch()
    (path / "config.toml").unlink(missing_ok=True)
    for entry in path.iterdir():
        if entry.name in (INCOMPLETE, locks.NAME):
            continue
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def _lines(path: Path) -> list[str]:
    """The complete lines of a file after its header; none if the file is missing or damaged."""
    with suppress(OSError, ValueError):
        lines = regular(path).read_text(encoding="utf-8").splitlines()[1:]
        return [line for line in lines if isinstance(json.loads(line), dict)]
    return []


def earlier_run(start: Path, *, of: Path | None) -> Run:
    """The run that the one in the folder `of` was warm-started from. Its path was recorded as typed, so it is searched
    for relative to the current folder, then to that of the run and its parents."""
    path = find_run(start, of)
    if of is not None and not (path / "config.toml").exists():
        raise FileNotFoundError(
            f"{of} was warm-started from {start}, which is found neither relative to {Path.cwd()} nor to "
            f"{of.absolute()} or its parents; move it there, or change to the folder where the run was started"
        )
    return Run.open(path)


def find_run(start: Path, of: Path | None) -> Path:
    """The first existing run of this path; the path itself if there is none."""
    own = None if of is None else of.absolute()
    above = [] if own is None else [folder / start for folder in (own, *own.parents)]
    return next((path for path in (start, *above) if (path / "config.toml").exists()), start)

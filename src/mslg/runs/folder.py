"""A run is a folder of readable files, from which an interrupted run can be resumed."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runtime import distributed, toml
from ..runtime.files import PARTIAL, write_atomically
from ..runtime.machine import versions
from ..training.loop import EpochRecord, Position
from ..training.method import Method
from .checkpoint import load_state, save_state, to_device
from .finished import require_finished
from .sharded_checkpoint import are_shards, delete_shards, load_shards, save_shards

FORMAT = 1


class RunMismatch(ValueError):
    """A run cannot be resumed, because its data or settings are not those it was started with."""


class Run:
    """The folder of one training run.

    config.toml      every setting, the versions and the fingerprint of the data
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
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(
        cls, path: Path, config: Mapping[str, Any], *, files: Mapping[str, bytes] | None = None, force: bool = False
    ) -> Run:
        """Create the folder, with files that the run starts with. An existing run is overwritten only with `force`. The
        main process writes all files but checkpoints."""
        if not distributed.is_main_process():
            distributed.barrier()
            return cls(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if not force:
                what = "a finished run" if (path / "done").exists() else "an existing folder"
                raise FileExistsError(
                    f"{path} is {what}; resume it (resume=True, --resume), replace it (force=True, --force), "
                    "or name another folder"
                )
            if path.is_dir() and not _is_run(path):
                raise FileExistsError(f"{path} is not a run's folder (no config.toml of a run) and will not be deleted")
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.mkdir(parents=True, exist_ok=True)
        run = cls(path)
        for name, content in (files or {}).items():
            write_atomically(path / name, content)
        text = toml.dumps({"format_version": FORMAT, **config, "versions": versions()})
        write_atomically(path / "config.toml", text.encode())
        for name in ("metrics", "timing"):
            header = json.dumps({"format_version": FORMAT, "kind": name})
            write_atomically(path / f"{name}.jsonl", f"{header}\n".encode())
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
        return tomllib.loads((self.path / "config.toml").read_text())

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

    def save(self, method: Method, position: Position) -> None:
        """Write a checkpoint; the previous one is kept until it is complete. Each process writes its own shard."""
        folder = self.checkpoint.parent
        folder.mkdir(exist_ok=True)
        tables = [*method.sample_tables(), *position.history.sample_tables()]
        for table in tables:
            table.begin_checkpoint()
        state = {"method": method.sharded_state(), "position": position.state_dict()}
        if distributed.ranks() > 1:
            save_shards(folder, state)
            if distributed.is_main_process():
                self.checkpoint.unlink(missing_ok=True)  # from an earlier single-process run
        else:
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
        if are_shards(self.checkpoint.parent):
            state = load_shards(self.checkpoint.parent)
        elif self.checkpoint.exists():
            state = load_state(self.checkpoint)
        else:
            self._keep_epochs(0)
            return False
        method.load_state_dict(to_device(state["method"], method.task.device))
        position.load_state_dict(to_device(state["position"], method.task.device))
        self._keep_epochs(position.epoch)
        return True

    def append(self, record: EpochRecord) -> None:
        """Record an epoch."""
        if not distributed.is_main_process():
            return
        for name, values in {"metrics": record.metrics, "timing": record.seconds}.items():
            with (self.path / f"{name}.jsonl").open("a") as file:
                file.write(json.dumps({"epoch": record.epoch, **values}) + "\n")

    def history(self, name: str = "metrics") -> list[dict[str, float]]:
        """The epochs recorded so far."""
        lines = (self.path / f"{name}.jsonl").read_text().splitlines()[1:]
        return [json.loads(line) for line in lines]

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a small result."""
        if not distributed.is_main_process():
            return
        text = json.dumps({"format_version": FORMAT, **value}, indent=1, ensure_ascii=False)
        write_atomically(self.path / name, f"{text}\n".encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a small result."""
        value: dict[str, Any] = json.loads((self.path / name).read_text())
        return value

    def finish(self) -> None:
        """Mark the run as complete: the last thing written."""
        if distributed.is_main_process():
            write_atomically(self.path / "done", b"")
        distributed.barrier()

    def _keep_epochs(self, count: int) -> None:
        if not distributed.is_main_process():
            distributed.barrier()
            return
        for name in ("metrics", "timing"):
            path = self.path / f"{name}.jsonl"
            lines = path.read_text().splitlines(keepends=True) if path.exists() else []
            header = json.dumps({"format_version": FORMAT, "kind": name}) + "\n"
            write_atomically(path, "".join([header, *lines[1 : 1 + count]]).encode())
        distributed.barrier()


def _is_run(path: Path) -> bool:
    """Whether a run created this folder: no other may be deleted."""
    try:
        config = tomllib.loads((path / "config.toml").read_text())
    except (OSError, ValueError):
        return False
    return "format_version" in config and "mslg" in config.get("versions", {})


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

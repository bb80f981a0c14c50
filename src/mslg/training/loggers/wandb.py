"""Weights & Biases: by default offline, in the run's folder; `wandb sync` sends it later."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from . import Metrics, Started, imported


class WandB:
    """Send it with `wandb sync RUN/wandb/offline-run-*`. WANDB_MODE=online in the environment sends it at once."""

    def __init__(self) -> None:
        self._wandb = imported("wandb", "wandb")
        self._run: Any = None

    def begin(self, started: Started) -> None:
        assert started.folder is not None
        mode = os.environ.get("WANDB_MODE", "offline")
        before = _earlier(started.folder / "wandb")
        if mode == "offline":
            # An offline log cannot be gone on with: it is written anew under the same id, from its first epoch.
            for folder in before:
                shutil.rmtree(folder)
        settings = self._wandb.Settings(
            silent=True, console="off", disable_git=True, x_disable_stats=True, x_disable_meta=True
        )
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "mslg"),
            name=started.folder.resolve().name,
            dir=started.folder,
            id=_id(before[-1]) if before else None,
            resume="allow",
            mode=mode,
            config=dict(started.config),
            settings=settings,
        )
        for epoch, metrics in started.history:
            if epoch >= self._run.step:  # 0 unless the server has some of them
                self.log(epoch, metrics)

    def log(self, epoch: int, metrics: Metrics) -> None:
        self._run.log(dict(metrics), step=epoch)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


def _earlier(folder: Path) -> list[Path]:
    """Folders that this run's log has had, the oldest first: (offline-)run-DATE_TIME-ID."""
    return sorted(folder.glob("*run-*_*-*"), key=lambda path: path.name.removeprefix("offline-"))


def _id(folder: Path) -> str:
    return folder.name.rpartition("-")[2]

"""Progress displays, on stderr."""

from __future__ import annotations

import sys
import time
from typing import Protocol

from .loop import EpochRecord, Position


class Progress(Protocol):
    """A progress display. Work is counted in plain training steps, so that the time left accounts for slow stages."""

    def begin(self, epochs: int, work: float, done: float) -> None: ...

    def advance(self, work: float, position: Position) -> None: ...

    def epoch(self, record: EpochRecord) -> None: ...

    def close(self) -> None: ...


class Silent:
    """Shows nothing."""

    def begin(self, epochs: int, work: float, done: float) -> None: ...

    def advance(self, work: float, position: Position) -> None: ...

    def epoch(self, record: EpochRecord) -> None: ...

    def close(self) -> None: ...


class Lines(Silent):
    """A line now and then, for logs and pipes."""

    def __init__(self, title: str = "", lines: int = 10) -> None:
        self.title, self.lines = f"{title}: " if title else "", lines

    def begin(self, epochs: int, work: float, done: float) -> None:
        self.epochs, self.every, self.begun = epochs, max(1, epochs // self.lines), time.monotonic()

    def epoch(self, record: EpochRecord) -> None:
        count = record.epoch + 1
        if count % self.every == 0 or count == self.epochs:
            took = time.monotonic() - self.begun
            print(f"{self.title}epoch {count}/{self.epochs}  {headline(record)}  {took:.0f} s", file=sys.stderr)


class Bar(Silent):
    """A bar with the time left and the newest accuracy."""

    def __init__(self, title: str = "training") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._title = title
        # Narrow enough for 80 columns: what is cut off on a terminal is not there.
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[news]}"),
            console=Console(stderr=True),
        )

    def begin(self, epochs: int, work: float, done: float) -> None:
        self._epochs = epochs
        self._task = self._bar.add_task(self._title, total=work, completed=int(done), news="")
        self._bar.start()

    def advance(self, work: float, position: Position) -> None:
        description = f"{self._title} {min(position.epoch + 1, self._epochs)}/{self._epochs}"
        self._bar.update(self._task, advance=work, description=description)

    def epoch(self, record: EpochRecord) -> None:
        self._bar.update(self._task, news=headline(record))

    def close(self) -> None:
        self._bar.stop()


def headline(record: EpochRecord) -> str:
    """The newest numbers, in a few words."""
    words = [f"loss {record.metrics['train/loss']:.3f}"] if "train/loss" in record.metrics else []
    for key, name in {"test/accuracy": "test", "select/accuracy": "held-out", "labels/accuracy": "label table"}.items():
        if key in record.metrics:
            words.append(f"{name} {100 * record.metrics[key]:.1f} %")
    return "  ".join(words)


def for_terminal(title: str = "training", *, lines: int = 10) -> Progress:
    """A bar on a terminal, about this many lines elsewhere."""
    return Bar(title) if sys.stderr.isatty() else Lines(title, lines)

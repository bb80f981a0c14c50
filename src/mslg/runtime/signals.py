"""Signals that ask a process to end: finish what is being written, then leave with 128 + the number of the signal."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

log = logging.getLogger("mslg")

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal has asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number

    @property
    def exit_code(self) -> int:
        return 128 + self.number


@contextmanager
def raised() -> Iterator[None]:
    """Inside, the signals raise `Interrupted`, so that temporary files are removed on the way out."""

    def raise_it(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one leaves at once
        raise Interrupted(number)

    with _handling(raise_it):
        yield


@contextmanager
def postponed(what: str) -> Iterator[Callable[[], int]]:
    """Inside, a signal is only remembered: the function that is returned gives its number, or 0. A second one leaves at
    once. Signals that are ignored, as SIGHUP is under nohup, stay ignored."""
    pending = 0

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal pending
        if pending:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        pending = number
        log.warning("%s: %s; once more to leave at once", signal.Signals(number).name, what)

    with _handling(remember):
        yield lambda: pending


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread may
        yield
        return
    before: dict[signal.Signals, Any] = {}
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier if earlier is not None else signal.SIG_DFL)

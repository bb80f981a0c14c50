"""How much of a long wait is over, in log lines."""

from __future__ import annotations

import logging
import time

from .durations import in_words

log = logging.getLogger("mslg")

EVERY = 10.0  # seconds between two lines: what is done sooner says nothing


class TimeLeft:
    """Logs now and then how many of `total` are done, and how long the rest will take; without a total, how many."""

    def __init__(self, title: str, total: int | None = None) -> None:
        self.title, self.total, self.done = title, total, 0
        self.begun = self.said = time.monotonic()

    def advance(self, count: int) -> None:
        """So many more are done."""
        self.done += count
        now = time.monotonic()
        if now - self.said < EVERY or (self.total is not None and self.done >= self.total):
            return
        self.said = now
        if self.total is None:
            log.info("%s: %d so far", self.title, self.done)
            return
        left = (now - self.begun) / self.done * (self.total - self.done)
        log.info("%s: %d of %d, about %s left", self.title, self.done, self.total, in_words(left))

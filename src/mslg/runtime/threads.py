"""How many threads torch computes with: one, or all. On a machine with other work to do, threads that wait for each
other can be many times slower than a single one, so a few steps are timed with both. All of them are at best a few
times as fast, so they have to be clearly faster."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch

from .distributed import ranks

log = logging.getLogger("mslg")

SET_BY_USER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # torchrun sets the first
ROUNDS = 3
PIECES = 2 * (ROUNDS + 1)  # of work, after which the number is decided
CLEARLY = 1.2  # times as fast as a single thread, that all of them must be


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Inside, torch computes with this many threads; None: as before."""
    before = torch.get_num_threads()
    try:
        if threads is not None and threads != before:
            torch.set_num_threads(threads)
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def may_choose() -> bool:
    """Whether nobody else has chosen the number of threads."""
    return ranks() == 1 and not any(os.environ.get(name) for name in SET_BY_USER)


class ThreadTrial:
    """Times equal pieces of work, in turns with one thread and with all of them.

    Args:
        level: at which the choice is logged.

    Attributes:
        threads: the faster number, once it is `decided`.
    """

    def __init__(self, level: int = logging.INFO) -> None:
        self.level = level
        self.threads = torch.get_num_threads()
        self.seconds: dict[int, list[float]] = {self.threads: [], 1: []}
        self.decided = len(self.seconds) == 1 or not may_choose()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Inside, the next piece of work is done."""
        if self.decided:
            with using_threads(self.threads):
                yield
            return
        threads = min(self.seconds, key=lambda number: len(self.seconds[number]))
        begun = time.perf_counter()
        with using_threads(threads):
            yield
        self.seconds[threads].append(time.perf_counter() - begun)
        if all(len(taken) > ROUNDS for taken in self.seconds.values()):
            # Without the first of each, which warms up. Slow pieces count for several threads, which will wait for each
            # other in the rest of the work too; a single one is slowed down by chance.
            mean = sum(self.seconds[self.threads][1:]) / ROUNDS
            self.decided, gain = True, mean / median(self.seconds[1][1:])
            if gain > 1 / CLEARLY:
                log.log(
                    self.level,
                    "using 1 thread: in a few timed steps %.1f times as fast as %d (set OMP_NUM_THREADS to override)",
                    *(gain, self.threads),
                )
                self.threads = 1

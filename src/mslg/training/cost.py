"""The cost of a run, measured before it starts on a few plain steps of a copy of its network."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from ..data.batch import call
from ..data.splits import Splits
from ..runtime.machine import programs_per_processor
from ..runtime.threads import PIECES, ThreadTrial
from .losses import cross_entropy
from .method import Method

SLOWER = 3  # the loop, evaluation and results beside the steps of a small network, and other programs
TIMED = 0.02  # seconds of steps between two changes of the number of threads, at least


@contextmanager
def plain_step(method: Method, data: Splits) -> Iterator[Callable[[], float]]:
    """A function that makes one forward and backward pass of the deployed network on a training batch, and returns the
    seconds it took. The method is left unchanged."""
    network = copy.deepcopy(method.deployed()).train().requires_grad_(True)  # an averaged one has no gradients
    batch = next(data.batches(0))

    def step() -> float:
        begun = time.perf_counter()
        loss = cross_entropy(call(network, batch.inputs).log_softmax(1), batch.label).mean()
        loss.backward()
        loss.item()  # waits for a GPU
        return time.perf_counter() - begun

    with torch.random.fork_rng(devices=[data.device] if data.device.type == "cuda" else []), method.computing():
        yield step


def seconds_per_plain_step(method: Method, data: Splits, tries: int = 2) -> float:
    """The time of a plain step."""
    with plain_step(method, data) as step:
        step()  # warms up
        return min(step() for _ in range(tries))


def faster_threads(method: Method, data: Splits) -> int | None:
    """The number of threads with which plain steps are faster, one or all; None where it is not to be chosen here."""
    trial = ThreadTrial()
    if trial.decided or data.device.type != "cpu":
        return None
    with plain_step(method, data) as step:
        for _ in range(PIECES):
            with trial.timed():
                taken = 0.0
                while taken < TIMED:
                    taken += step()
    return trial.threads


def duration_range(method: Method, data: Splits, work: float) -> tuple[float, float]:
    """Seconds that this much work takes, at least and at most: steps as they were measured, and with everything around
    them on a machine that has other things to do, as much as it has now or more."""
    seconds = seconds_per_plain_step(method, data) * work
    return seconds, SLOWER * seconds * max(1.0, programs_per_processor())


def work_of(method: Method, data: Splits, epochs: int, first: int = 0) -> float:
    """The work from an epoch to the end, in plain steps."""
    steps = data.steps(method.excluded())
    method.before_estimate(data)
    return sum(steps * method.relative_cost(epoch) for epoch in range(first, epochs))

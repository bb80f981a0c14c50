"""Stages and learning-rate schedules as fractions of a run, so that a short run is a scaled-down long one."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from ..registry import unknown


class Schedule(Protocol):
    """A factor on the learning rate at a point of the run between 0 and 1."""

    def __call__(self, progress: float) -> float: ...


@dataclass(frozen=True)
class Steps:
    """Piecewise constant: the factor that applies from each fraction of the run on."""

    factors: Mapping[float, float]

    def __call__(self, progress: float) -> float:
        reached = [point for point in self.factors if progress + 1e-9 >= point]
        return self.factors[max(reached)] if reached else 1.0


@dataclass(frozen=True)
class Restarted:
    """Two stages, each with the whole of its schedule; `factor` is on the learning rate of the second."""

    start: float  # of the second stage, as a fraction of the run
    first: Schedule
    second: Schedule
    factor: float = 1.0

    def __call__(self, progress: float) -> float:
        if progress < self.start - 1e-9:
            return self.first(progress / self.start)
        return self.factor * self.second((progress - self.start) / (1 - self.start))


def constant(progress: float) -> float:
    """The learning rate as given."""
    return 1.0


def cosine(progress: float) -> float:
    """Half a cosine from the learning rate down to zero."""
    return 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "cosine": cosine,
    "steps": Steps({1 / 3: 0.1, 2 / 3: 0.01}),  # the paper's 40 and 80 of 120 epochs
    "released-steps": Steps({41 / 120: 0.1, 81 / 120: 0.01}),  # the paper's code changes one epoch later
    "half-step": Steps({1 / 2: 0.1}),  # the paper's Clothing1M and Food-101N: 5 of 10 epochs
}


class Played:
    """A torch scheduler, played once from beginning to end: the factor after each of its steps. Like every schedule a
    function of the position, so that a resumed run has the right learning rate.

    Args:
        make: makes the scheduler of an optimizer.
        rate: returns the learning rate of the run's optimizer; called when the schedule is first used.
        steps: how often the scheduler steps in a run.
    """

    def __init__(self, make: Callable[[Any], Any], rate: Callable[[], float], steps: int) -> None:
        self.make, self.rate, self.steps = make, rate, steps
        self._played(1.0)  # so that one that cannot be used is reported before the run

    def __call__(self, progress: float) -> float:
        return self.factors[min(int(progress * self.steps + 1e-6), self.steps - 1)]

    @cached_property
    def factors(self) -> list[float]:
        """The factor on the learning rate at each step."""
        return self._played(self.rate())

    def _played(self, rate: float) -> list[float]:
        import torch

        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate, momentum=0.9)
        scheduler = self.make(optimizer)
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau) or not hasattr(scheduler, "step"):
            raise ValueError(
                f"schedule makes a {type(scheduler).__name__}; the learning rate must follow from the position in the "
                "run, so that it can be resumed: pass another scheduler of torch, a function of progress, or a name"
            )
        factors = []
        for _ in range(self.steps):
            factors.append(float(optimizer.param_groups[0]["lr"]) / rate)
            optimizer.step()
            scheduler.step()
        return factors


def schedule(named: str | Callable[..., Any], *, rate: Callable[[], float] = lambda: 1.0, steps: int = 1) -> Schedule:
    """A schedule from its name, a function of progress, or a function from an optimizer to a torch scheduler, which is
    recognised by its first argument's name."""
    if not isinstance(named, str):
        first = next(iter(inspect.signature(named).parameters.values()), None)
        if first is not None and first.name in ("optimizer", "opt", "optim"):
            return Played(named, rate, steps)
        return named
    if named not in SCHEDULES:
        raise unknown("schedule", named, SCHEDULES)
    return SCHEDULES[named]


def first_epoch(stage: str, start: float, epochs: int) -> int:
    """The epoch in which a stage starts; `start` is a fraction of the run, or epochs if ≥ 1.

    Unless `start` is 0, there is at least one epoch before the stage; there must be one in it.
    """
    if start < 0:
        raise ValueError(f"the start of {stage} is {start}; it must be 0 or more")
    first = round(start * epochs) if start < 1 else round(start)
    if start > 0:
        first = max(first, 1)
    if first >= epochs:
        raise ValueError(
            f"a run of {epochs} epoch{'s' if epochs != 1 else ''} never reaches {stage}, which starts after "
            f"{first}; train for at least {first + 1} epochs or start it earlier"
        )
    return first

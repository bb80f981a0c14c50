"""The three stages of a run: when each begins, its learning rates, and how many clean samples a step takes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch.optim import Optimizer

from ...data.batch import Batch
from ...training.method import Task
from ...training.schedules import Schedule

CYCLE = 5  # epochs of the first cycle of the learning rate, at least
LEAST_STEPS = 100  # of the deployed network
MOST_DECAY = 5e-3  # with more, as ten times that of heads on features would be, a network learns next to nothing


def check_settings(label_every: int, *, fractions: Mapping[str, float], amounts: Mapping[str, float]) -> None:
    """Raise unless the settings are possible."""
    if label_every < 1:
        raise ValueError(f"label_every is {label_every}; it must be 1 step or more")
    if not 0 < fractions["clean_ratio"] <= 1:
        raise ValueError(f"clean_ratio is {fractions['clean_ratio']}; it must be above 0 and at most 1")
    for name in ("own_weight", "given_weight"):
        if not 0 <= fractions[name] <= 1:
            raise ValueError(f"{name} is {fractions[name]}; it must be from 0 to 1")
    for name, value in amounts.items():
        if value < 0:
            raise ValueError(f"{name} is {value}; it must be 0 or more")


def stage_starts(task: Task, noisy_stage: float, forward_stage: float) -> tuple[int, int, int]:
    """The first epoch of each stage; a warm start has the last one only. Lengths are fractions of the run, or epochs
    if ≥ 1."""
    forward = task.warm_up_epochs(noisy_stage, before="the forward stage of cross-fitting")
    length = max(1, round(forward_stage * task.epochs if forward_stage < 1 else forward_stage))
    last = 0 if task.warm else forward + length
    if last >= task.epochs:
        raise ValueError(
            f"a run of {task.epochs} epochs has none left for the deployed network after {last} of cross-fitting; "
            f"train for at least {last + 1} epochs or shorten noisy_stage and forward_stage"
        )
    return 0, forward, last


def repeats(task: Task, start: int, steps: int) -> int:
    """How many steps the deployed network takes on each batch, if its stage starts in this epoch and an epoch has so
    many batches: a network of few steps knows less than its labels do. Steps on micro-batches add up, so there is one.
    """
    return 1 if task.accumulate > 1 else max(1, -(-LEAST_STEPS // (steps * (task.epochs - start))))


def raise_weight_decay(optimizer: Optimizer, factor: float) -> None:
    """Multiply the weight decay, up to MOST_DECAY; what is larger already is left as it is."""
    for group in optimizer.param_groups:
        if "weight_decay" in group:
            own = group["weight_decay"]
            group["weight_decay"] = max(own, min(factor * own, MOST_DECAY))


def schedule_by_stage(task: Task, starts: tuple[int, int, int]) -> Schedule:
    """Every stage has the whole of the task's schedule; long ones of fold networks have it several times, so that
    networks that have not been trained for long, and have memorised little, are among those to choose from."""
    bounds = [start / task.epochs for start in starts] + [1.0]

    def schedule(progress: float) -> float:
        stage = max(number for number in range(3) if progress >= bounds[number] - 1e-9)
        length = bounds[stage + 1] - bounds[stage]
        part = (progress - bounds[stage]) / length
        return task.schedule(part if stage == 2 else in_cycle(part, length * task.epochs))

    return schedule


def in_cycle(part: float, epochs: float) -> float:
    """How far a cycle is, from 0 to 1, at this part of a stage of so many epochs: each cycle is twice as long as the
    one before it, and the first has CYCLE epochs or more."""
    cycles = max(1, int(math.log2(epochs / CYCLE + 1)))
    passed = part * float(2**cycles - 1) + 1
    number = min(cycles - 1, int(math.log2(passed + 1e-9)))
    return min(1.0, max(0.0, passed / float(2**number) - 1))


def some(clean: Batch, ratio: float) -> Batch:
    """This fraction of the samples, at least two: of the clean ones beside as many noisy ones, enough to learn from and
    cheaper."""
    return clean.at(slice(None, None, max(1, min(round(1 / ratio), len(clean.index) // 2))))

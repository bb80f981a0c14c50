"""The three stages of a run: when each begins, its learning rates, and how many clean samples a step takes."""

from __future__ import annotations

from ...data.batch import Batch, map_inputs
from ...training.method import Task
from ...training.schedules import Schedule


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


def schedule_by_stage(task: Task, starts: tuple[int, int, int]) -> Schedule:
    """Every stage has the whole of the task's schedule."""
    bounds = [start / task.epochs for start in starts] + [1.0]

    def schedule(progress: float) -> float:
        stage = max(number for number in range(3) if progress >= bounds[number] - 1e-9)
        return task.schedule((progress - bounds[stage]) / (bounds[stage + 1] - bounds[stage]))

    return schedule


def half(batch: Batch) -> Batch:
    """Half of the samples: of the clean ones beside as many noisy ones, enough to learn from and cheaper."""
    return Batch(batch.index[::2], map_inputs(lambda tensor: tensor[::2], batch.inputs), batch.label[::2])

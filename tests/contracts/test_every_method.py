"""One contract for every method: registering is being tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch

from mslg.data.batch import Batch
from mslg.methods import METHODS
from mslg.methods.cross_entropy import CrossEntropy
from mslg.testing import METHOD_CHECKS, check_method
from mslg.training.method import Method, StepResult, Task


@pytest.mark.parametrize("check", METHOD_CHECKS)
@pytest.mark.parametrize("name", METHODS.built_in)
def test_contract(name: str, check: Callable[[type[Method]], None]) -> None:
    check(METHODS.load(name))


class Untyped(CrossEntropy):
    def __init__(self, task: Task, rate=0.1) -> None:  # type: ignore[no-untyped-def]
        super().__init__(task)


class WithAGraph(CrossEntropy):
    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        result = super().step(batch, clean)
        result.log_probs = self.log_probs(batch.inputs)
        return result


class Waiting(CrossEntropy):
    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        result = super().step(batch, clean)
        float(result.scalars["loss"])
        return result


class Forgetful(CrossEntropy):
    """What counts is not part of the state."""

    steps = 0

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        self.steps += 1
        result = super().step(batch, clean)
        return StepResult({**result.scalars, "steps": torch.tensor(float(self.steps))}, result.log_probs)


class Greedy(CrossEntropy):
    needs: ClassVar[frozenset[str]] = frozenset({"clean set"})


class Lost(CrossEntropy):
    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        result = super().step(batch, clean)
        return StepResult({"loss": result.scalars["loss"] * float("inf")}, result.log_probs)


class WrongPreset(CrossEntropy):
    presets: ClassVar[Any] = {"paper": lambda task: {"alpha": 1}}


@pytest.mark.parametrize(
    ("method", "contract"),
    [
        (Untyped, r"Untyped\(task, \*, rate\): every setting must be keyword-only"),
        (WrongPreset, r"preset paper has settings that WrongPreset does not take: \['alpha'\]"),
        (WithAGraph, "log_probs must be detached"),
        (Waiting, "step must not wait for the device"),
        (Forgetful, "a run resumed at .* must end as the uninterrupted one"),
        (Greedy, "Greedy trains without clean samples: take 'clean set' out of needs"),
    ],
)
def test_a_broken_contract_is_stated(method: type[Method], contract: str) -> None:
    with pytest.raises(AssertionError, match=contract):
        check_method(method)


def test_divergence_is_an_error_of_the_loop() -> None:
    with pytest.raises(ArithmeticError):
        check_method(Lost)

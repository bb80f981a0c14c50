"""The benchmark of the loop runs, and tells steps from what the loop adds to them."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from mslg.networks.mlp import MLP

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "loop_overhead.py"


@pytest.fixture
def loop_overhead(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("loop_overhead", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loop_overhead", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("learner", ["cross-entropy", "mslg"])
def test_steps_and_what_the_loop_adds_are_told_apart(loop_overhead: ModuleType, learner: str) -> None:
    kind = loop_overhead.Kind(lambda: MLP(8, 10, hidden=[8]), (8,), 16, 3)
    found = loop_overhead.measure(kind, learner, 2, time.perf_counter)
    assert {name for name, value in found.items() if value > 0} == {
        *("bare_ms", "step_ms", "added_ms", "evaluation_ms", "checkpoint_ms", "added_percent")
    }


def test_image_files_are_waited_for(loop_overhead: ModuleType) -> None:
    found = loop_overhead.measure_images(0, count=12, side=32, batch=4)
    assert found["decode_ms"] > 0
    assert found["step_ms"] > 0

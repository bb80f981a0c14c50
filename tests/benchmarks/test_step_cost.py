"""The benchmark of a step's cost runs, and answers in the shape that its readers expect."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "step_cost.py"
MODES = {"plain", "double-backward", "exact", "recompute", "difference", "no-look-ahead", "head", "fast"}  # at least


@pytest.fixture
def step_cost(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("step_cost", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "step_cost", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_benchmark_prints_one_json_object() -> None:
    command = [sys.executable, str(SCRIPT), "--json", "--width", "4", "--batch", "8", "--rounds", "1"]
    # Two modes and one thread: every mode more is one more process, and threads would only wait for each other.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command += ["--modes", "exact"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    cost = json.loads(printed)
    assert set(cost) == {"time", "memory", "plain_ms", "plain_mb"}
    assert set(cost["time"]) == set(cost["memory"]) == {"plain", "exact"}
    assert cost["plain_ms"] > 0
    assert cost["time"]["plain"] == 1
    assert cost["time"]["exact"] > 1
    assert cost["memory"]["plain"] in (1, None)  # None where the system does not tell


def small(step_cost: ModuleType, name: str) -> Any:
    return replace(step_cost.KINDS[name], width=2, batch=4, rounds=1)


@pytest.mark.parametrize("name", ["cnn8", "resnet18", "mlp"])
def test_every_mode_takes_its_step(step_cost: ModuleType, name: str) -> None:
    modes = [mode for mode in step_cost.STEPS if mode != "compiled"]  # which takes half a minute
    assert set(modes) >= MODES
    seconds = step_cost.measure_time(modes, small(step_cost, name))
    assert list(seconds) == modes
    assert all(taken > 0 for taken in seconds.values())
    multiples = step_cost.in_multiples_of_plain({**seconds, "head": None})
    assert multiples["plain"] == 1
    assert multiples["head"] is None


def test_a_kept_gradient_is_timed_over_whole_cycles(step_cost: ModuleType) -> None:
    assert {"clean-every-4": 4, "fast": step_cost.preset("fast")["clean_every"]} == step_cost.CYCLES


@pytest.mark.parametrize("name", ["cnn8", "resnet18", "mlp"])
def test_the_naive_step_and_ours_move_the_weights_alike(step_cost: ModuleType, name: str) -> None:
    """What is compared in cost must be the same computation."""
    after = {}
    for mode in ("double-backward", "exact", "recompute"):
        bench = step_cost.Bench.build(small(step_cost, name))
        for module in bench.network.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        for group in bench.optimizer.param_groups:
            group["lr"] = 1.0
        step_cost.STEPS[mode](bench)()
        after[mode] = torch.cat([p.detach().flatten() for p in bench.network.parameters()])
    torch.testing.assert_close(after["exact"], after["double-backward"], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(after["recompute"], after["exact"], rtol=1e-4, atol=1e-5)

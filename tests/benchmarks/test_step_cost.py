"""The benchmark of a step's cost runs, and answers in the shape that its readers expect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "step_cost.py"
MODES = {"plain", "double-backward", "exact", "recompute", "difference", "no-look-ahead", "head"}


def test_the_benchmark_prints_one_json_object_with_every_mode() -> None:
    command = [sys.executable, str(SCRIPT), "--json", "--width", "4", "--batch", "8", "--rounds", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cost = json.loads(printed)
    assert set(cost) == {"time", "memory", "plain_ms"}
    assert set(cost["time"]) == set(cost["memory"]) == MODES
    assert cost["plain_ms"] > 0
    assert cost["time"]["plain"] == 1
    assert all(multiple > 0 for multiple in cost["time"].values())
    if sys.platform == "linux" and cost["memory"]["plain"] is not None:
        assert cost["memory"]["plain"] == 1

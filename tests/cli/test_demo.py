"""The demo keeps its promise: the default beats every control, in under two minutes of training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_beats_all_three_controls(tmp_path: Path, seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mslg", "demo", "-o", str(tmp_path / "demo"), "--seed", str(seed), "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    found = json.loads(done.stdout)
    rows = found["rows"]
    assert set(rows) == {"cross-entropy", "clean-only", "noisy-plus-clean", "cross-fitted"}
    assert rows["cross-fitted"]["given"] == pytest.approx(0.6, abs=0.005)
    for control in ("cross-entropy", "clean-only", "noisy-plus-clean"):
        assert rows["cross-fitted"]["test"] > rows[control]["test"] + 0.02
    assert rows["cross-fitted"]["predicted"] > 0.93
    assert found["seconds"] < 120
    assert Path(found["picture"]).read_bytes().startswith(b"\x89PNG")
    assert Path(found["report"]).read_text().startswith("<!doctype html>")

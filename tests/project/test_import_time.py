"""`import mslg` costs next to nothing: torch is imported by those who use it."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

CODE = "import time; start = time.perf_counter(); import mslg; print(time.perf_counter() - start)"

LATE = "sklearn scipy pandas matplotlib torch._dynamo sympy"  # each takes a second or more
FIRST_STEP = f"""
import sys
import mslg.training.loop as loop
from mslg.cli import main

step = loop._step

def first(*arguments):
    step(*arguments)
    print([name for name in "{LATE}".split() if name in sys.modules])
    sys.exit()

loop._step = first
main()
"""


def test_the_package_is_imported_within_a_third_of_a_second() -> None:
    times = [float(subprocess.check_output([sys.executable, "-c", CODE])) for _ in range(5)]
    assert statistics.median(times) < 0.3


def test_the_first_step_of_a_run_needs_no_other_large_library(tmp_path: Path) -> None:
    options = ["--method", "cross-entropy", "--epochs", "1", "--no-compare", "--no-report", "-o", str(tmp_path / "run")]
    command = [sys.executable, "-c", FIRST_STEP, "fit", "digits", *options]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"

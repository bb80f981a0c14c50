"""`import mslg` costs next to nothing: torch is imported by those who use it."""

from __future__ import annotations

import statistics
import subprocess
import sys

CODE = "import time; start = time.perf_counter(); import mslg; print(time.perf_counter() - start)"


def test_the_package_is_imported_within_a_third_of_a_second() -> None:
    times = [float(subprocess.check_output([sys.executable, "-c", CODE])) for _ in range(5)]
    assert statistics.median(times) < 0.3

"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def mslg(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `mslg` as a user would, without colours and on one core."""
    environment = {**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "mslg", *words], capture_output=True, text=True, cwd=cwd, env=environment, timeout=240
    )

"""A sweep that is killed, again and again, ends with the same table."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.small_sweep import RECIPE

pytestmark = pytest.mark.slow

RECIPE = RECIPE.replace("epochs = 2", "epochs = 40")
KILLS = 4


def start(folder: Path, output: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "mslg", "sweep", "mine.toml", "-o", output, "-j", "2"]
    return subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True)


def table(folder: Path, output: str) -> str:
    words = [sys.executable, "-m", "mslg", "table", output, "--format", "json"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout


def begun(folder: Path) -> int:
    """How much is written down so far, in runs and as finished cells."""
    total = 0
    for file in (*folder.glob("runs/*/metrics.jsonl"), *folder.glob("cells.jsonl")):
        with suppress(FileNotFoundError):  # a finished run is deleted
            total += file.stat().st_size
    return total


@pytest.mark.timeout(900)
def test_killed_at_random_moments_a_sweep_gives_the_same_table(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(RECIPE)
    whole = start(tmp_path, "whole")
    assert whole.wait() == 0, whole.stderr and whole.stderr.read()
    chance = random.Random(0)
    for _ in range(KILLS):
        before = begun(tmp_path / "killed")
        process = start(tmp_path, "killed")
        while begun(tmp_path / "killed") == before:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        assert process.poll() is None, "there must be something left to kill"
        # The sweep alone: its workers must notice by themselves.
        process.send_signal(signal.SIGKILL)
        process.wait()
    last = start(tmp_path, "killed")
    assert last.wait() == 0, last.stderr and last.stderr.read()
    assert table(tmp_path, "killed") == table(tmp_path, "whole")


@pytest.mark.timeout(300)
def test_an_interrupted_sweep_ends_cleanly(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(RECIPE)
    process = start(tmp_path, "out")
    while not list(tmp_path.glob("out/runs/*/metrics.jsonl")):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, talk = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command to continue" in talk
    assert "Traceback" not in talk

"""Every command and every piece of Python in the README and the docs runs as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.blobs import blobs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

pytestmark = pytest.mark.slow


def blocks(kind: str) -> list[tuple[str, str]]:
    """Code blocks of the pages, in order. Blocks marked `sh` and `py` need what a test has not, and are only read."""
    return [
        (page.name, text) for page in PAGES for text in re.findall(rf"```{kind}\n(.*?)```", page.read_text(), re.DOTALL)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the reader would have it: noisy.npz and clean.npz."""
    path = tmp_path_factory.mktemp("reader")
    data = blobs()
    np.savez(path / "noisy.npz", X=data.x, y=data.given)
    np.savez(path / "clean.npz", X=data.clean_x, y=data.clean_y)
    # As a reviewer would have saved it: docs/review.md.
    (path / "decisions.csv").write_text("id,decision,label\ndigit-988,relabel,4\ndigit-1647,keep,\ndigit-3,remove,\n")
    return path


@pytest.mark.timeout(900)
def test_commands_run(folder: Path) -> None:
    commands = [
        line.partition("#")[0].strip()
        for _, text in blocks("bash")
        for line in text.splitlines()
        if line.startswith("mslg ")
    ]
    assert len(commands) >= 5
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", *command.split()],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "NO_COLOR": "1"},
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("place", range(len(blocks("python"))), ids=lambda place: blocks("python")[place][0])
def test_python_runs(folder: Path, place: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", blocks("python")[place][1]], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

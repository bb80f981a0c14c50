"""The wheel installs into an empty environment with the core dependencies alone, and works there."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)
def test_the_wheel_works_on_its_own(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(pip, check=True)
    (wheel,) = tmp_path.glob("mslg-*.whl")
    files = set(zipfile.ZipFile(wheel).namelist())
    page = "mslg/review/report/page"
    assert {"mslg/runs/recipes/paper_tables.json", f"{page}/page.html", f"{page}/review.js"} <= files
    assert "mslg/runs/model_card/card.md.j2" in files
    venv.create(tmp_path / "env", with_pip=True)
    binary = tmp_path / "env" / "bin"
    install = [str(binary / "pip"), "install", "-q", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*install, "torch"], check=True)
    subprocess.run([*install, str(wheel)], check=True)
    subprocess.run([str(binary / "mslg"), "list"], check=True, cwd=tmp_path, capture_output=True)
    words = ["fit", "--recipe", "digits", "-o", "run", "--epochs", "4", "--quiet"]
    subprocess.run([str(binary / "mslg"), *words], check=True, cwd=tmp_path)
    assert (tmp_path / "run" / "done").exists()
    assert (tmp_path / "run" / "report.html").exists()

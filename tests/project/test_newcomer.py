"""A newcomer's path: an empty folder, the demo, then the page "Clean my data" from its first block to its last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "clean-my-data.md"

pytestmark = pytest.mark.slow


def run(words: list[str], folder: Path) -> str:
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.timeout(1200)
def test_from_an_empty_folder_to_cleaned_data(tmp_path: Path) -> None:
    assert "runs/demo/cross-fitted/report.html" in run(["-m", "mslg", "demo"], tmp_path)
    assert (tmp_path / "runs" / "demo" / "cross-fitted" / "report.html").exists()
    told = {}
    for kind, block in re.findall(r"^```(python|py|sh)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        if kind == "sh":
            told |= {line: run(["-m", *line.split()], tmp_path) for line in block.splitlines()}
        else:
            run(["-c", block], tmp_path)
    assert "nothing here would stop a run" in told["mslg check photos --clean verified"]
    # The verified folder holds other photos than the training folder: how many labels are wrong cannot be stated.
    assert (
        "to find out, check 100 random ones: mslg review runs/first"
        in told["mslg fit photos --clean verified -o runs/first"]
    )
    assert (tmp_path / "runs" / "first" / "report.html").exists()

    truth = pd.read_csv(tmp_path / "truth.csv", index_col="id")["true"]
    labels = pd.read_parquet(tmp_path / "runs" / "first" / "labels.parquet").sort_values("rank")
    wrong = labels["given_label"] != labels["id"].map(truth)
    assert wrong.head(100).mean() > 0.95
    assert (labels["suggested_label"] == labels["id"].map(truth)).mean() > 0.9 > 0.75 > (~wrong).mean()

    cleaned = pd.read_parquet(tmp_path / "cleaned.parquet")
    assert (cleaned["label"] == cleaned["id"].map(truth)).sum() == (~wrong).sum() + wrong.head(100).sum()
    moved = labels["id"].iloc[0]
    assert len(list((tmp_path / "cleaned" / truth[moved]).glob(f"*{Path(moved).stem}*.png"))) == 1
    assert len(list((tmp_path / "cleaned").rglob("*.png"))) == len(cleaned)

    second = pd.read_parquet(tmp_path / "runs" / "second" / "labels.parquet")
    assert len(second) == len(labels) - 100  # what was decided has left the noisy samples
    assert "50 samples added to the page as a tab" in told["mslg review-next runs/second -n 50 --page"]
    assert len(pd.read_parquet(tmp_path / "runs" / "second" / "next.parquet")) == 50

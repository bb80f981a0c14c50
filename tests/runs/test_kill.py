"""A run that is killed again and again ends as if nothing had happened, to the bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mslg.runs.checkpoint import load_state
from tests.support.blobs import blobs, same_state

pytestmark = pytest.mark.slow


def start(folder: Path, run: str, *more: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "mslg", "fit", "noisy.npz", "--clean", "clean.npz", "-o", run]
    words += ["--epochs", "80", "--batch-size", "16", "--checkpoint-minutes", "0", "--quiet", *more]
    return subprocess.Popen(words, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("table", ["memory", "file"])
def test_killed_at_random_moments_and_resumed_it_ends_the_same(tmp_path: Path, table: str) -> None:
    data = blobs()
    np.savez(tmp_path / "noisy.npz", X=data.x, y=data.given, y_true=data.true, X_test=data.test_x, y_test=data.test_y)
    np.savez(tmp_path / "clean.npz", X=data.clean_x, y=data.clean_y)

    def extra(run: str) -> list[str]:
        return ["--method", "mslg", "--set", f"table_file={run}/labels.table"] if table == "file" else []

    whole = start(tmp_path, "whole", *extra("whole"))
    begun = time.monotonic()
    assert whole.wait() == 0, whole.stderr and whole.stderr.read()
    length = time.monotonic() - begun

    chance = random.Random(0)
    kills = inside = 0
    while True:
        resume = ["--resume"] if (tmp_path / "killed").exists() else []
        process = start(tmp_path, "killed", *extra("killed"), *resume)
        metrics = tmp_path / "killed" / "metrics.jsonl"
        before = metrics.stat().st_size if metrics.exists() else 0
        # Wait until training has gone on, then for a random moment more.
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size != before):
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.05 * length))
        if process.poll() is not None:
            assert process.returncode == 0, process.stderr and process.stderr.read()
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        checkpoint = tmp_path / "killed" / "checkpoint" / "state.safetensors"
        inside += checkpoint.exists() and load_state(checkpoint)["position"]["step"] > 0
        assert kills < 60

    assert kills >= 4, "the test must have killed something"
    assert inside >= 1, "some kills must have come in the middle of an epoch"
    for name in ("metrics.jsonl", "model.safetensors", "summary.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    left, right = (pd.read_parquet(tmp_path / run / "labels.parquet") for run in ("whole", "killed"))
    pd.testing.assert_frame_equal(left, right, check_exact=True)
    states = [load_state(tmp_path / run / "checkpoint" / "state.safetensors") for run in ("whole", "killed")]
    if table == "file":
        tables = [(tmp_path / run / "labels.table").read_bytes() for run in ("whole", "killed")]
        assert tables[0] == tables[1]
        for state in states:  # the journal's number counts checkpoints, which differ
            state["method"].pop("table.displacement._extra_state")
    assert same_state(*states)

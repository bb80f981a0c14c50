"""The fuzzer of benchmarks/chaos.py, for some seconds: every hostile input ends with an answer, and nothing runs."""

from __future__ import annotations

import importlib
import logging
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mslg.cli import KNOWN
from mslg.cli.app import app

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SECONDS, MOST = 6, 160


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run beside its data."""
    folder = tmp_path_factory.mktemp("good")
    noise = np.random.default_rng(0)
    np.savez(folder / "data.npz", X=noise.normal(size=(40, 3)), y=np.arange(40) % 2, verified=np.arange(40) % 2)
    words = ["fit", "data.npz", "--clean", "8", "-o", "run", "--epochs", "1", "--method", "cross-entropy", "-q"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(app, [*words, "--no-report", "--no-compare"])
    assert done.exit_code == 0, done.exception
    return folder / "run"


@pytest.mark.timeout(120)
def test_hostile_inputs(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    hostile = importlib.import_module("hostile_inputs")
    logging.getLogger("mslg").setLevel(logging.ERROR)
    outside = tmp_path / "secret.png"
    outside.write_text(hostile.CANARY)
    begun, number = time.monotonic(), 0
    while number < len(hostile.MAKERS) or (number < MOST and time.monotonic() - begun < SECONDS):
        folder = tmp_path / "inputs" / str(number)
        kind, made = hostile.make(number, folder, good, outside, seed=1)
        monkeypatch.chdir(folder)
        result = CliRunner().invoke(app, made.words)
        told = f"{number} {kind} {made.words}: {result.output[-300:]} {result.exception!r}"
        assert result.exit_code in (0, 1, 2), told
        assert result.exception is None or isinstance(result.exception, (*KNOWN, SystemExit)), told
        assert not (made.refuse and result.exit_code == 0), told
        assert not (folder / hostile.MARK).exists(), told
        copied = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        assert not any(hostile.CANARY.encode() in path.read_bytes() for path in copied), told
        number += 1

"""A signal finishes the step, saves, says how to resume, and ends with 128 + its number."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import mslg
from mslg.cli.app import app
from mslg.runs.checkpoint import load_state
from mslg.runtime.signals import Interrupted
from tests.support.blobs import blobs, small_network


class Sends:
    """Progress that sends this process a signal after some steps."""

    def __init__(self, number: int, step: int) -> None:
        self.number, self.left = number, step

    def begin(self, *_: Any) -> None: ...
    def epoch(self, *_: Any) -> None: ...
    def close(self) -> None: ...

    def advance(self, *_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """Signals as in a terminal: a process in the background of a shell ignores some of them."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def fit(folder: Path, **settings: Any) -> mslg.Result:
    data = blobs()
    about = {"method": "cross-entropy", "epochs": 3, "batch_size": 16, "output": folder, "progress": False}
    return mslg.fit(small_network, (data.x, data.given), **{**about, **settings})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_within_an_epoch(tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture) -> None:
    handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    with pytest.raises(Interrupted) as ended:
        fit(tmp_path / "run", progress=Sends(number, 5))
    assert ended.value.exit_code == 128 + number
    assert "finishing this step, then a checkpoint; once more to leave at once" in caplog.text
    assert load_state(tmp_path / "run" / "checkpoint" / "state.safetensors")["position"]["step"] == 5
    assert handlers == [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    fit(tmp_path / "run", resume=True)
    fit(tmp_path / "whole")
    names = ("model.safetensors", "metrics.jsonl", "summary.json")
    for name in names:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_what_is_ignored_stays_ignored_as_under_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        fit(tmp_path / "run", progress=Sends(signal.SIGHUP, 5))
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_without_a_folder_a_signal_is_not_held_back() -> None:
    with pytest.raises(KeyboardInterrupt) as ended:
        fit(None, progress=Sends(signal.SIGINT, 5))  # type: ignore[arg-type]
    assert not isinstance(ended.value, Interrupted)


def test_in_another_thread_nothing_is_installed(tmp_path: Path) -> None:
    thread = threading.Thread(target=lambda: fit(tmp_path / "run"))
    thread.start()
    thread.join()
    assert (tmp_path / "run" / "done").exists()


def test_the_command_says_how_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslg.fitting.fit.fit_settings", _interrupted)
    np.savez(tmp_path / "data.npz", X=np.zeros((4, 2)), y=[0, 1, 0, 1])
    words = ["fit", str(tmp_path / "data.npz"), "-o", str(tmp_path / "run")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 143
    assert f"interrupted by SIGTERM; continue with: mslg fit -o {tmp_path / 'run'} --resume" in result.output


def _interrupted(*_: Any, output: Path, **__: Any) -> None:
    output.mkdir()
    (output / "config.toml").touch()
    raise Interrupted(signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True])
def test_the_process_ends_with_128_plus_the_signal(tmp_path: Path, twice: bool) -> None:
    data = blobs()
    np.savez(tmp_path / "data.npz", X=data.x, y=data.given)
    words = [sys.executable, "-m", "mslg", "fit", "data.npz", "-o", "run", "--method", "cross-entropy"]
    process = subprocess.Popen(
        [*words, "--epochs", "100000"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    while not (tmp_path / "run" / "checkpoint" / "state.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    if twice:
        process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode in ((143, -signal.SIGTERM) if twice else (143,))
    if not twice:
        assert "interrupted by SIGTERM; continue with: mslg fit -o run --resume" in said
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize("asked", [0, 1])
def test_of_two_processes_it_is_enough_that_one_is_asked(tmp_path: Path, asked: int) -> None:
    data = blobs()
    np.savez(tmp_path / "data.npz", X=data.x, y=data.given)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    about = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = [sys.executable, "-m", "mslg", "fit", "data.npz", "-o", "run", "--method", "cross-entropy", "--epochs"]
    processes = [
        subprocess.Popen(
            [*words, "100000"],
            cwd=tmp_path,
            env={**about, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        for rank in (0, 1)
    ]
    while not (tmp_path / "run" / "checkpoint" / "shards.json").exists():
        assert all(process.poll() is None for process in processes)
        time.sleep(0.05)
    processes[asked].send_signal(signal.SIGTERM)
    said = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [143, 143]
    assert "interrupted by SIGTERM; continue with: mslg fit -o run --resume" in said[0]
    assert "Traceback" not in "".join(said)
    assert CliRunner().invoke(app, ["verify", str(tmp_path / "run")]).exit_code == 0

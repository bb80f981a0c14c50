"""The number of threads is chosen by timing, and not where somebody else has chosen it."""

from __future__ import annotations

import logging
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mslg
from mslg.runtime.threads import ThreadTrial, using_threads


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with using_threads(2):
        yield


def decided(seconds: dict[int, float]) -> ThreadTrial:
    """A trial of work that takes this long with so many threads."""
    trial = ThreadTrial()
    while not trial.decided:
        with trial.timed():
            time.sleep(seconds[torch.get_num_threads()])
    return trial


def test_a_clearly_faster_single_thread_is_taken_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "mslg"):
        trial = decided({1: 0.001, 2: 0.02})
    assert trial.threads == 1
    assert "using 1 thread" in caplog.text
    with trial.timed():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_all_threads_are_kept_if_they_are_clearly_faster(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "mslg"):
        assert decided({1: 0.02, 2: 0.001}).threads == 2
    assert not caplog.text
    assert decided({1: 0.02, 2: 0.02}).threads == 1  # no gain, and a risk on a busy machine


def test_one_slow_piece_does_not_speak_against_a_single_thread() -> None:
    trial = ThreadTrial()
    trial.seconds = {2: [1.0, 0.3, 0.3, 0.3], 1: [1.0, 0.1, 9.0]}
    with trial.timed():
        time.sleep(0.1)
    assert trial.decided
    assert trial.threads == 1


def test_what_the_user_has_set_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    trial = ThreadTrial()
    assert trial.decided
    assert trial.threads == 2


def test_the_number_is_recorded_and_used_again_on_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(int)
    used: list[int] = []
    fails = True

    def note(*_: object) -> None:
        used.append(torch.get_num_threads())
        if fails and len(used) > 3:
            raise KeyboardInterrupt

    def network() -> torch.nn.Module:
        layer = torch.nn.Linear(3, 2)
        layer.register_forward_hook(note)
        return layer

    about: dict[str, Any] = {"method": "cross-entropy", "epochs": 2, "output": tmp_path / "run", "compare": False}
    monkeypatch.setattr("mslg.runs.execute.faster_threads", lambda method, data: 1)
    with pytest.raises(KeyboardInterrupt):
        mslg.fit(network, (rows, labels), **about)
    assert tomllib.loads((tmp_path / "run" / "config.toml").read_text())["threads"] == 1
    monkeypatch.setattr("mslg.runs.execute.faster_threads", lambda method, data: 2)
    fails, used[:] = False, []
    mslg.fit(network, (rows, labels), resume=True, **about)
    assert used[-1] == 1
    assert torch.get_num_threads() == 2

"""Lines about a long wait."""

from __future__ import annotations

import logging

import pytest

from mslg.runtime import time_left
from mslg.runtime.time_left import TimeLeft


def test_a_line_every_ten_seconds_says_how_long_the_rest_takes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(time_left.time, "monotonic", lambda: now[0])
    shown = TimeLeft("decoding", 100)
    with caplog.at_level(logging.INFO, "mslg"):
        for _ in range(10):
            now[0] += 4
            shown.advance(10)
    assert caplog.messages == ["decoding: 30 of 100, about 28 s left", "decoding: 60 of 100, about 16 s left",
                               "decoding: 90 of 100, about 4 s left"]  # fmt: skip


def test_without_a_total_a_line_says_how_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(time_left.time, "monotonic", lambda: now[0])
    shown = TimeLeft("looking for images")
    with caplog.at_level(logging.INFO, "mslg"):
        for _ in range(4):
            now[0] += 6
            shown.advance(500)
    assert caplog.messages == ["looking for images: 1000 so far", "looking for images: 2000 so far"]

"""Durations and ranges of them in words."""

from __future__ import annotations

import pytest

from mslg.runtime.durations import range_in_words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(20, 60, "20 to 60 s"), (40, 120, "40 s to 2 min"), (300, 900, "5 to 15 min"), (0.1, 0.3, "about 0 s")],
)
def test_a_range_says_its_unit_once(low: float, high: float, words: str) -> None:
    assert range_in_words(low, high) == words

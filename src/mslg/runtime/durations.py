"""Durations in words."""

from __future__ import annotations


def in_words(seconds: float) -> str:
    """A duration as a person would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def range_in_words(low: float, high: float) -> str:
    """A range of durations; the unit is said once if it is the same."""
    first, last = in_words(low), in_words(high)
    if first == last:
        return f"about {last}"
    number, unit = first.split()
    return f"{number if unit == last.split()[1] else first} to {last}"

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
    """A range of durations, such as 2 to 4 min."""
    least, most = in_words(low), in_words(high)
    if least == most:
        return most
    unit = most.split()[-1]
    return f"{least.split()[0]} to {most}" if least.split()[-1] == unit else f"{least} to {most}"

"""Durations in words."""

from __future__ import annotations


def in_words(seconds: float) -> str:
    """A duration as a person would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

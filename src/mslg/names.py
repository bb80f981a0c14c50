"""Errors for names that do not exist: the value, what was allowed, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UnknownName(ValueError):
    """A name that is not in its list."""


def unknown(kind: str, name: object, allowed: Iterable[str]) -> UnknownName:
    """The error for a name that is not allowed."""
    choices = list(allowed)
    close = get_close_matches(str(name), choices, n=1, cutoff=0.5)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return UnknownName(f"unknown {kind} '{name}'.{hint} Allowed: {', '.join(choices)}")


def expect_name(kind: str, name: str, allowed: Iterable[str]) -> None:
    """Raise unless the name is one of those allowed."""
    choices = list(allowed)
    if name not in choices:
        raise unknown(kind, name, choices)

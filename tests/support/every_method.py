"""The problem of the contract checks, by the name of a method."""

from __future__ import annotations

from typing import Any

from mslg.methods import METHODS
from mslg.testing import problem as contract
from mslg.testing.problem import EPOCHS, Problem

__all__ = ["EPOCHS", "problem"]


def problem(name: str, **settings: Any) -> Problem:
    """The named method on the small problem that the contract checks train on."""
    return contract.problem(METHODS.load(name), **settings)

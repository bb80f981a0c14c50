"""Cells of CSV files that a spreadsheet would take for formulas."""

from __future__ import annotations

import re

RUNS = ("=", "+", "-", "@", "\t", "\r")  # what formulas start with, in the programs that are in use
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
QUOTE = "'"  # before a cell, it says that the rest is text


def escaped(text: str | None) -> str | None:
    """The text such that no spreadsheet runs it. `unescaped` gives it back, also if it started with a quote."""
    if not text or NUMBER.fullmatch(text):
        return text
    return QUOTE + text if text.lstrip(QUOTE).startswith(RUNS) else text


def unescaped(text: str) -> str:
    """The text of a cell that may have been escaped."""
    bare = text.lstrip(QUOTE)
    return text[1:] if text.startswith(QUOTE) and bare.startswith(RUNS) and not NUMBER.fullmatch(bare) else text

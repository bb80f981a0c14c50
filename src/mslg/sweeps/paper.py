"""The numbers of the paper, to be shown beside our own."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from ..registry import unknown

Numbers = dict[tuple[str, str], tuple[float | None, float | None]]


def paper_numbers(table: str) -> Numbers:
    """Mean and standard deviation, in percent, by (row, column) of one of the paper's tables. A mean of None means that
    the method failed there; a deviation of None was not published."""
    tables = paper()["tables"]
    if table not in tables:
        raise unknown("table of the paper", table, tables)
    found = tables[table]
    return {
        (row, column): (mean, sd)
        for row, values in found["rows"].items()
        for column, mean, sd in zip(found["columns"], values["mean"], values["sd"], strict=True)
    }


def paper() -> dict[str, Any]:
    """What the package knows of the paper: its tables, and MSLG's settings by data set."""
    text = (resources.files("mslg.runs.recipes") / "paper_tables.json").read_text()
    read: dict[str, Any] = json.loads(text)
    return read

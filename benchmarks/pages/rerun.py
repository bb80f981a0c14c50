"""Cells that were run again, on docs/results/index.md: do the committed numbers come out to the last digit?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .words import prose, table

TEST = ("last: test/accuracy", "test")


def section(results: Path) -> list[str]:
    """What came out, where it has been tried."""
    path = results / "rerun.json"
    if not path.exists():
        return []
    cells: list[dict[str, Any]] = json.loads(path.read_text())
    return [
        "## Run again",
        prose(
            f"`python benchmarks/rerun.py --root DATA --write` runs {len(cells)} committed cells again, old and new",
            "ones, and compares every digit of their last and best epochs and their curves.",
        ),
        table(["cell", "verdict"], [[each["cell"], _words(each)] for each in cells]),
    ]


def _words(cell: dict[str, Any]) -> str:
    apart = cell["differences"]
    if not apart:
        return "the same to the last digit"
    test = next((apart[name] for name in TEST if name in apart), None)
    words = "differs" if test is None else f"test accuracy {100 * test[0]:.2f} then, {100 * test[1]:.2f} now"
    return f"{words}: {cell['note']}" if "note" in cell else words

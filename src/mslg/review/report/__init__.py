"""A run as one HTML page that opens anywhere, offline: its numbers, and its suspects for a person to judge."""

from __future__ import annotations

from pathlib import Path

from ...runtime.files import write_atomically
from .gather import gather
from .render import render

NAME = "report.html"
CARDS = 500


def write_report(run: Path | str, output: Path | str | None = None, *, cards: int = CARDS) -> Path:
    """Write the page of a run's folder, from the files in it and nothing else; by default into the folder itself."""
    if cards < 0:
        raise ValueError(f"cards is {cards}; give the number of samples to show, 0 for none")
    folder = Path(run)
    path = folder / NAME if output is None else Path(output)
    page = render(gather(folder, cards=cards))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page)
    return path

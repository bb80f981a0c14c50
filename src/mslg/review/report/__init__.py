"""A run as one HTML page that opens offline: its numbers, and its suspects to review."""

from __future__ import annotations

from pathlib import Path

from ...runtime.files import write_atomically
from .render import render
from .report_data import read_report_data

NAME = "report.html"
CARDS = 500


def write_report(run: Path | str, output: Path | str | None = None, *, cards: int = CARDS) -> Path:
    """Write the report of a run.

    Args:
        run: the folder of a run that has its labels.
        output: the page; by default report.html in the run's folder.
        cards: how many samples to show for review, worst first.

    Returns:
        The path of the page.
    """
    if cards < 0:
        raise ValueError(f"cards is {cards}; give the number of samples to show, 0 for none")
    folder = Path(run)
    path = folder / NAME if output is None else Path(output)
    page = render(read_report_data(folder, cards=cards))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page)
    return path

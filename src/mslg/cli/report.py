"""`mslg report`: a run as one HTML page, with its numbers and its suspects to review."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The page; by default report.html in the run's folder.")
    ] = None,
    cards: Annotated[
        int, typer.Option(min=0, max=1000, help="Samples to review on the page; a run keeps its 1,000 worst.")
    ] = 500,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the path and size of the page as JSON.")] = False,
) -> None:
    """Write a run as one page that opens offline: numbers, curves, and suspects to accept, keep or relabel.

    Examples:

    mslg report runs/first --open

    mslg report runs/first -o review.html --cards 1000
    """
    from ..review.report import write_report

    path = write_report(run, output, cards=cards)
    if as_json:
        print(json.dumps({"report": str(path), "bytes": path.stat().st_size}))
    else:
        print(f"report: {path}", file=sys.stderr)
    if open_it:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())

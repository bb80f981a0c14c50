"""`mslg demo`: train four methods on real digits with 40 % wrong labels."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Annotated

import typer

from ..runs.settings import DEFAULT_METHOD

METHODS = {
    "cross-entropy": "the noisy labels as they are",
    "clean-only": "the 100 clean samples alone",
    "noisy-plus-clean": "both together",
    "cross-fitted": "soft labels learned with the clean samples",
}


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the runs and the figure.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the noise, the split and the weights.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier demo.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Train on 1,200 real digits with 40 % wrong labels and 100 clean ones: three controls beside the default.

    Example: mslg demo -o runs/demo
    """
    logging.getLogger("mslg").setLevel(logging.WARNING)
    from ..review.report import write_report
    from .digits_demo import compare, draw_corrections

    begun = time.monotonic()
    rows, corrected = compare(list(METHODS), output, seed=seed, force=force)
    picture = output / "corrected.png"
    draw_corrections(corrected, picture)
    page = write_report(output / DEFAULT_METHOD)
    seconds = time.monotonic() - begun
    if as_json:
        print(json.dumps({"rows": rows, "picture": str(picture), "report": str(page), "seconds": seconds}))
        return
    _show(rows, picture, page, seconds)


def _show(rows: dict[str, dict[str, float]], picture: Path, page: Path, seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    given = rows[DEFAULT_METHOD]["given"]
    table = Table(title=f"Digits: 1,200 training images, {100 * (1 - given):.0f} % of their labels wrong, 100 clean")
    table.add_column("method")
    table.add_column("trained on")
    table.add_column("test accuracy", justify="right")
    table.add_column("training labels predicted right", justify="right")
    best = max(row["test"] for row in rows.values())
    for name, words in METHODS.items():
        row = rows[name]
        style = "bold green" if row["test"] == best else ""
        table.add_row(name, words, f"{100 * row['test']:.1f} %", f"{100 * row['predicted']:.1f} %", style=style)
    console = Console()
    console.print(table)
    console.print(f"{seconds:.0f} s. The labels it would correct first: [bold]{picture}[/bold]", highlight=False)
    console.print(f"Review them yourself in a browser: [bold]{page}[/bold]", highlight=False)

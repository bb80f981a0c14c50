"""`mslg table`: the results of a sweep as a table, beside the paper's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..registry import expect_name

FORMATS = ("text", "markdown", "latex", "csv", "json")


def table(
    folder: Annotated[Path, typer.Argument(help="Folder of the sweep.")],
    recipe: Annotated[
        str | None, typer.Option(help="Use this recipe instead of the one in the folder: a name or a .toml file.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "text",
    measure: Annotated[
        str, typer.Option(help="Metric to show: test/accuracy, report/accuracy, labels/accuracy, …")
    ] = "test/accuracy",
    best: Annotated[
        bool, typer.Option("--best", help="Show the epoch that was best on held-out clean samples instead of the last.")
    ] = False,
    against: Annotated[
        str | None, typer.Option(help="Row to compare with; default: the reference of the recipe.")
    ] = None,
    paper: Annotated[
        bool, typer.Option(help="Show the paper's numbers beside ours, where the recipe names them.")
    ] = True,
) -> None:
    """Print the mean ± standard deviation of every cell, and the differences between methods.

    Cells whose training diverged are shown as fail. Differences are paired by seed, with 95 % intervals.

    Examples:

    mslg table sweeps/mine

    mslg table sweeps/mine --format markdown --against cross-entropy > results.md
    """
    expect_name("format", form, FORMATS)
    from ..sweeps.render import FORMATS as RENDERINGS
    from ..sweeps.render import Shown, text
    from ..sweeps.run import open_sweep
    from ..sweeps.table import paired, summary

    grid, found = open_sweep(folder, recipe)
    numbers = None
    if paper and grid.paper is not None and measure == "test/accuracy":  # the paper has no others
        from ..sweeps.paper import paper_numbers

        numbers = paper_numbers(grid.paper)
    reference = against or grid.reference
    shown = Shown(
        grid,
        summary(grid, found, measure, best_epoch=best, paper=numbers),
        reference,
        {} if reference is None else paired(grid, found, reference, measure, best_epoch=best),
    )
    if form == "text":
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
        print(text(shown, width), end="")
    else:
        print(RENDERINGS[form](shown), end="")

"""`mslg plot`: the results of a sweep as curves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..registry import expect_name

if TYPE_CHECKING:
    from ..sweeps.grid import Axis

KINDS = ("epochs", "labels", "given", "clean")


def plot(
    folder: Annotated[Path, typer.Argument(help="Folder of the sweep.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .png, .svg or .pdf file; default: DIR/KIND.png.")
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            help="epochs: test accuracy over epochs; labels: correct labels over epochs; given: how many given labels "
            "are predicted, over epochs; clean: accuracy over the number of clean samples."
        ),
    ] = "epochs",
    row: Annotated[list[str] | None, typer.Option(help="Draw only this row. Can be repeated.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="Draw only this column. Can be repeated.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Use this recipe instead of the one in the folder: a name or a .toml file.")
    ] = None,
) -> None:
    """Plot the curves of a sweep: mean over seeds, with a band of one standard deviation.

    Examples:

    mslg plot sweeps/mine

    mslg plot sweeps/mine --kind labels --column uniform-40 -o labels.svg
    """
    expect_name("kind of plot", kind, KINDS)
    from ..sweeps.curves import colour_numbers, draw, panels
    from ..sweeps.run import open_sweep

    grid, found = open_sweep(folder, recipe)
    chosen = replace(grid, rows=_some("row", grid.rows, row), columns=_some("column", grid.columns, column))
    made = panels(chosen, found, kind)
    if not made:
        raise ValueError(f"there are no results to plot yet; run the sweep first: mslg sweep RECIPE -o {folder}")
    path = output or folder / f"{kind}.png"
    draw(made, path, title=grid.title, colours=colour_numbers(grid), kind=kind)
    print(path)


def _some(kind: str, axes: tuple[Axis, ...], names: list[str] | None) -> tuple[Axis, ...]:
    for name in names or ():
        expect_name(kind, name, [axis.name for axis in axes])
    return tuple(axis for axis in axes if not names or axis.name in names)

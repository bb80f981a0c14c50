"""A sweep for a cluster's scheduler: each missing cell is one `mslg fit` that can be launched anywhere."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ..runtime import toml
from ..runtime.files import write_atomically
from .collect import collected
from .grid import Cell, Grid
from .run import known, places, run_folder


def missing(grid: Grid, folder: Path, cells: Sequence[Cell]) -> list[Cell]:
    """Those cells that are neither written down nor finished in their own folder."""
    there = known(grid, folder)
    return [cell for cell in cells if cell.key not in there and collected(run_folder(folder, cell), cell) is None]


def write_command(folder: Path, cell: Cell, root: str | None, *, device: str = "auto", workers: int = 0) -> str:
    """Write the cell's recipe; returns the command that runs it into the folder where the sweep will look."""
    run = run_folder(folder, cell)
    recipe = folder / "cells" / f"{run.name}.toml"
    recipe.parent.mkdir(parents=True, exist_ok=True)
    title = f"# {cell.row}, {cell.column}, seed {cell.seed}\n"
    write_atomically(recipe, (title + toml.dumps(cell.placed(**places(folder, root)))).encode())
    words = ["--recipe", str(recipe), "-o", str(run), "--no-compare"]  # the sweep's rows are what is compared
    words += ["--device", device, "--workers", str(workers), "--resume"]
    return shlex.join(["mslg", "fit", *words])

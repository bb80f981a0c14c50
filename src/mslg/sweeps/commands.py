"""A sweep as shell commands for a cluster's scheduler: one `mslg fit` per missing cell."""

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
    """The cells with no result, neither in the ledger nor in a run folder of their own."""
    there = known(grid, folder)
    return [cell for cell in cells if cell.key not in there and collected(run_folder(folder, cell), cell) is None]


def write_command(
    folder: Path, cell: Cell, root: str | None, *, device: str = "auto", workers: int = 0, trust_code: bool = False
) -> str:
    """Write the cell's recipe. Returns the command that runs it into the folder where the sweep looks for it."""
    run = run_folder(folder, cell)
    recipe = folder / "cells" / f"{run.name}.toml"
    recipe.parent.mkdir(parents=True, exist_ok=True)
    title = f"# {cell.row}, {cell.column}, seed {cell.seed}\n"
    write_atomically(recipe, (title + toml.dumps(cell.placed(**places(folder, root)))).encode())
    words = ["--recipe", str(recipe), "-o", str(run), "--no-compare"]  # the rows of the sweep are the comparison
    words += ["--device", device, "--workers", str(workers), "--resume", *(["--trust-code"] if trust_code else [])]
    return shlex.join(["mslg", "fit", *words])

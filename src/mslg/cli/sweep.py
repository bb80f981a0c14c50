"""`mslg sweep`: run every cell of a recipe that has no result yet."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..registry import unknown
from ..runtime.signals import Interrupted

if TYPE_CHECKING:
    from ..sweeps.grid import Cell, Grid


def sweep(
    recipe: Annotated[str, typer.Argument(help="Recipe of the sweep: a name (mslg list recipes) or a .toml file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the sweep.")],
    processes: Annotated[
        int | None,
        typer.Option(
            "-j",
            "--processes",
            min=0,
            help="Parallel runs, one core each; default: all cores, or 1 on a GPU. 0: only collect finished runs.",
        ),
    ] = None,
    root: Annotated[str | None, typer.Option(help="Folder of the data: the value of {root} in the recipe.")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Run only this row. Can be repeated.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="Run only this column. Can be repeated.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Run only this seed. Can be repeated.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the settings of each cell, defaults included, and exit.")
    ] = False,
    commands: Annotated[
        bool, typer.Option("--commands", help="Print one command per missing cell, for a scheduler, and exit.")
    ] = False,
    keep_runs: Annotated[bool, typer.Option("--keep-runs", help="Keep the run folders of finished cells.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images, per run.")] = 0,
    trust_code: Annotated[bool, typer.Option("--trust-code", help="Import code that the recipe names.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only warnings and errors.")] = False,
) -> None:
    """Compare methods: run every combination of row, column and seed that has no result yet.

    Results are kept in DIR/cells.jsonl. After an interruption, the same command continues. mslg table and mslg plot
    show the results.

    Examples:

    mslg sweep mine.toml -o sweeps/mine -j 4

    mslg sweep mine.toml -o sweeps/mine --row mslg --seed 0 --dry-run

    mslg sweep mine.toml -o sweeps/mine --commands > jobs.txt
    """
    logging.getLogger("mslg").setLevel(logging.WARNING)
    from ..runs.recipes import refuse_code
    from ..sweeps.grid import load_grid

    grid = load_grid(recipe)
    chosen = _chosen(grid, row, column, seed)
    if not trust_code:
        for cell in chosen:
            refuse_code(cell.settings, {}, recipe)
    if dry_run:
        _dry_run(chosen, output, root, as_json)
    elif commands:
        _commands(grid, chosen, output, root, as_json, device=device, workers=workers, trust_code=trust_code)
    else:
        from ..sweeps.pool import default_processes

        number = default_processes(device) if processes is None else processes
        machine = {"device": device, "workers": workers, "trust_code": trust_code}
        _run(grid, chosen, output, number, as_json, quiet, root=root, keep_runs=keep_runs, **machine)


def _chosen(grid: Grid, rows: list[str] | None, columns: list[str] | None, seeds: list[int] | None) -> list[Cell]:
    allowed: dict[str, tuple[Sequence[Any] | None, Sequence[Any]]] = {
        "row": (rows, [axis.name for axis in grid.rows]),
        "column": (columns, [axis.name for axis in grid.columns]),
        "seed": (seeds, list(grid.seeds)),
    }
    for kind, (given, names) in allowed.items():
        for name in given or ():
            if name not in names:
                raise unknown(kind, name, [str(each) for each in names])
    return [
        cell
        for cell in grid.cells()
        if all(not given or value in given for (given, _), value in zip(allowed.values(), cell.key, strict=True))
    ]


def _dry_run(cells: list[Cell], folder: Path, root: str | None, as_json: bool) -> None:
    from ..runtime import toml
    from ..sweeps.resolve_cell import resolved
    from ..sweeps.run import places

    for cell in cells:
        settings = resolved(cell, places(folder, root))
        if as_json:
            place = {"row": cell.row, "column": cell.column, "seed": cell.seed}
            print(json.dumps({**place, "settings": settings}, ensure_ascii=False))
        else:
            print(f"# {cell.row}, {cell.column}, seed {cell.seed}\n{toml.dumps(settings)}")


def _commands(grid: Grid, cells: list[Cell], folder: Path, root: str | None, as_json: bool, **machine: Any) -> None:
    from ..sweeps.commands import missing, write_command

    for cell in missing(grid, folder, cells):
        command = write_command(folder, cell, root, **machine)
        place = {"row": cell.row, "column": cell.column, "seed": cell.seed}
        print(json.dumps({**place, "command": command}, ensure_ascii=False) if as_json else command)


def _run(
    grid: Grid, cells: list[Cell], folder: Path, processes: int, as_json: bool, quiet: bool, **options: Any
) -> None:
    from ..sweeps.progress import Lines, Standing, Table
    from ..sweeps.run import known, run_sweep

    wanted = {cell.key for cell in cells}
    standing = Standing(cells, known(grid, folder), processes)
    before = len(standing.finished)
    display: Any = Table(grid, standing) if sys.stderr.isatty() and not quiet else Lines(standing, quiet=quiet)
    try:
        with display as watch:
            errors = run_sweep(
                grid, folder, processes=processes, only=lambda cell: cell.key in wanted, watch=watch, **options
            )
    except KeyboardInterrupt as error:
        print(f"interrupted, {standing.headline()}; run the same command to continue", file=sys.stderr)
        raise typer.Exit(error.exit_code if isinstance(error, Interrupted) else 130) from None
    if as_json:
        found = standing.finished.values()
        answer = {
            "cells": len(cells),
            "finished": len(found),
            "ran": len(found) - before,
            "failed": sum(each.state == "failed" for each in found),
            "errors": [
                dict(zip(("row", "column", "seed"), key, strict=True), error=words) for key, words in errors.items()
            ],
        }
        print(json.dumps(answer, ensure_ascii=False))
    elif not quiet and not errors:
        print(f"{standing.headline()}; see: mslg table {folder}", file=sys.stderr)
    for (row, column, seed), words in errors.items():
        print(f"could not run {row}, {column}, seed {seed}: {words}", file=sys.stderr)
    if errors:
        print(f"{len(errors)} of {len(cells)} cells could not be run; run the same command to retry", file=sys.stderr)
        raise typer.Exit(1)

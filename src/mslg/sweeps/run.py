"""Runs the cells of a sweep that have no result yet, and records each result as soon as it is there."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import chain
from pathlib import Path

from ..runtime.files import write_atomically
from .collect import collected
from .grid import Cell, Grid, load_grid
from .ledger import Finished, Ledger
from .pool import Event, Job, run_all


def run_sweep(
    grid: Grid,
    folder: Path,
    *,
    processes: int = 1,
    root: str | None = None,
    keep_runs: bool = False,
    only: Callable[[Cell], bool] = lambda cell: True,
    watch: Callable[[Event], None] = lambda event: None,
    device: str = "auto",
    workers: int = 0,
    trust_code: bool = False,
) -> dict[tuple[str, str, int], str]:
    """Run the cells that have no result in the folder. Returns the errors of those that could not be run."""
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        cells = grid.cells()
        ledger = Ledger(folder)
        if not (recipe := folder / "recipe.toml").exists() or recipe.read_text() != grid.text:
            write_atomically(recipe, grid.text.encode())
        known = ledger.tidy(cells)
        missing = [cell for cell in cells if cell.key not in known and only(cell)]
        # Some may have been launched separately and finished in their own folders.
        there = [_collected(folder, cell) for cell in missing]
        jobs = [
            Job(cell, run_folder(folder, cell), places(folder, root), device, workers, trust_code)
            for cell, event in zip(missing, there, strict=True)
            if event is None
        ]
        errors = {}
        with ExitStack() as ending:
            events: Iterable[Event] = ending.enter_context(closing(run_all(jobs, processes))) if jobs else ()
            for event in chain(filter(None, there), events):
                if event.finished is not None:
                    ledger.add(event.finished)
                    if not keep_runs:
                        shutil.rmtree(run_folder(folder, event.cell), ignore_errors=True)
                if event.error is not None:
                    errors[event.cell.key] = event.error
                watch(event)
        ledger.tidy(cells)
        with suppress(OSError):
            (folder / "runs").rmdir()  # fails if it is not empty
        return errors


def _collected(folder: Path, cell: Cell) -> Event | None:
    try:
        found = collected(run_folder(folder, cell), cell)
    except ValueError as error:
        return Event(cell, error=str(error))
    return None if found is None else Event(cell, finished=found)


def run_folder(folder: Path, cell: Cell) -> Path:
    """The folder of a cell's run; its name depends on the settings."""
    return folder / "runs" / f"{cell.name}--{cell.digest[:6]}"


def places(folder: Path, root: str | None) -> dict[str, str | None]:
    """The values of {root} and {output}."""
    # Absolute, so that a run resumed from another working directory has the same settings.
    return {"root": None if root is None else str(Path(root).resolve()), "output": str(folder.resolve())}


def results(grid: Grid, folder: Path) -> dict[tuple[str, str, int], Finished]:
    """The results that belong to the current recipe."""
    read = Ledger(folder).read()
    return {
        cell.key: read[cell.key] for cell in grid.cells() if cell.key in read and read[cell.key].settings == cell.digest
    }


def known(grid: Grid, folder: Path) -> dict[tuple[str, str, int], Finished]:
    """The results of cells that need not be run, stale ones included if the recipe has changed back."""
    return Ledger(folder).known(grid.cells())


def open_sweep(folder: Path, recipe: str | None = None) -> tuple[Grid, dict[tuple[str, str, int], Finished]]:
    """The recipe of a sweep (or the one given) and the results that belong to it."""
    if not (folder / "recipe.toml").exists() and recipe is None:
        raise FileNotFoundError(f"there is no sweep in {folder}; start one: mslg sweep RECIPE -o {folder}")
    grid = load_grid(recipe or str(folder / "recipe.toml"))
    return grid, results(grid, folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder: two sweeps into one folder would run everything twice."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BlockingIOError(
                f"another sweep is writing to {folder}; wait for it, or choose another folder"
            ) from error
        yield

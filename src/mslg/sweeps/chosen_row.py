"""A row that selects among others: for each column and seed, the run that is best on held-out clean samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .ledger import Finished

SELECT = "select/accuracy"


def chosen(cells: Iterable[Finished], name: str, *, metric: str = SELECT) -> list[Finished]:
    """For each column and seed, the cell whose last epoch is best by the metric, as a row with this name. The test
    set is not used. A failed cell is chosen only if all failed; ties go to the first."""
    best: dict[tuple[str, int], Finished] = {}
    for cell in cells:
        if cell.state == "done" and metric not in cell.last:
            raise ValueError(
                f"{cell.row}, {cell.column}, seed {cell.seed} has no {metric} to select by; "
                "selecting needs 200 clean samples or more, some of which are held out"
            )
        before = best.setdefault((cell.column, cell.seed), cell)
        if cell.last.get(metric, -1.0) > before.last.get(metric, -1.0):
            best[cell.column, cell.seed] = cell
    return [replace(cell, row=name) for cell in best.values()]

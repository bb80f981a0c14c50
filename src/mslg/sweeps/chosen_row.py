"""A control that is allowed to choose: of several rows, for each column and seed the best one on clean samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .ledger import Finished

SELECT = "select/accuracy"


def chosen(cells: Iterable[Finished], name: str, *, metric: str = SELECT) -> list[Finished]:
    """For each column and seed, the cell that is best by the metric in its last epoch, as a row of this name. The test
    set has no say in it. A cell that failed is taken only where all did; of equals the first is taken."""
    best: dict[tuple[str, int], Finished] = {}
    for cell in cells:
        if cell.state == "done" and metric not in cell.last:
            raise ValueError(
                f"{cell.row}, {cell.column}, seed {cell.seed} has no {metric} to choose by; "
                "choosing needs 200 clean samples or more, of which some are held out"
            )
        before = best.setdefault((cell.column, cell.seed), cell)
        if cell.last.get(metric, -1.0) > before.last.get(metric, -1.0):
            best[cell.column, cell.seed] = cell
    return [replace(cell, row=name) for cell in best.values()]

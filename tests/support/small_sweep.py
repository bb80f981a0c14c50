"""A sweep of eight runs that take a moment, and its cells carried out in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mslg.sweeps.grid import Grid, load_grid
from mslg.sweeps.ledger import Finished
from mslg.sweeps.pool import Event, Job, run_cell

RECIPE = """# Two methods on two noises.
[sweep]
seeds = [0, 1]
reference = "cross entropy"
protocol = "clean: 100 samples"

[data]
source = "digits"
clean = 100

[network]
name = "mlp"
hidden = [16]

[train]
epochs = 2
batch_size = 128

[columns.uniform-40.data]
noise = "uniform"
rate = 0.4

[columns.pair-20.data]
noise = "pair"
rate = 0.2

[rows."cross entropy".method]
name = "cross-entropy"

[rows.mslg.method]
name = "mslg"
"""


def grid_of(folder: Path, text: str = RECIPE) -> Grid:
    path = folder / "given.toml"
    path.write_text(text)
    return load_grid(str(path))


class Inline:
    """Stands in for the pool; notes what it was asked to run."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str, int]] = []
        self.sent: list[Event] = []

    def send(self, event: Event) -> None:
        self.sent.append(event)

    def __call__(self, jobs: Sequence[Job], processes: int) -> Iterator[Event]:
        for job in jobs if processes else ():
            self.ran.append(job.cell.key)
            try:
                done = Event(job.cell, finished=run_cell(job, self))  # type: ignore[arg-type]
            except Exception as error:
                done = Event(job.cell, error=str(error))
            yield from self.sent
            self.sent.clear()
            yield done


def made(grid: Grid, value: object) -> dict[tuple[str, str, int], Finished]:
    """Results without runs: `value(row, column, seed)` is the accuracy, None for a run that diverged."""
    found = {}
    for cell in grid.cells():
        accuracy = value(*cell.key)  # type: ignore[operator]
        last = {} if accuracy is None else {"test/accuracy": accuracy}
        state = "failed" if accuracy is None else "done"
        found[cell.key] = Finished(*cell.key, settings=cell.digest, state=state, last=last)
    return found

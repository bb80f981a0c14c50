"""What the paper's Table 1 costs at its own scale: the work of every row of `paper-table1-published`, in plain training
steps of its network, with the arithmetic and the measured time of one such step.

    python benchmarks/full_protocol.py --root DATA     # writes benchmarks/results/full_protocol.json

DATA holds cifar-10-batches-py. Trains nothing: a method says itself what its epochs cost. docs/results/full-protocol.md
is made from the file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from mslg.fitting.prepare import prepare
from mslg.networks.cnn import CNN8
from mslg.runs.run_data import open_run_data
from mslg.runs.settings import Options, Settings
from mslg.sweeps.grid import Grid, load_grid

RESULT = Path(__file__).parent / "results" / "full_protocol.json"
RECIPE = "paper-table1-published"
SAMPLES, SMALL = 50_000, 256  # of the training set; and as many as it takes to ask a method what it costs


def plain_step(batch: int, rounds: int) -> dict[str, float]:
    """Arithmetic and time of a forward and backward pass of the paper's network, on one core."""
    torch.set_num_threads(1)
    network, images, label = CNN8(), torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))

    def step() -> None:
        torch.nn.functional.cross_entropy(network(images), label).backward()

    with FlopCounterMode(display=False) as counter:
        step()
    taken = []
    for _ in range(rounds):
        begun = time.process_time()
        step()
        taken.append(time.process_time() - begun)
    return {"batch": batch, "gflop": counter.get_total_flops() / 1e9, "seconds": round(statistics.median(taken), 3)}


def work(grid: Grid, root: str) -> dict[str, dict[str, float]]:
    """Plain steps of one run of each row."""
    found = {}
    column = next(each for each in grid.columns if each.name == "uniform-40")
    for row in grid.rows:
        tables: Any = grid.cell(row, column, 0).placed(root=root, output=".")
        tables["data"]["subset"] = SMALL
        settings, data = open_run_data(Settings.of(tables))
        prepared = prepare(settings, replace(data), Options(progress=False))
        epochs = int(tables["train"]["epochs"])
        steps = -(-SAMPLES // int(tables["train"]["batch_size"]))
        cost = sum(prepared.method.relative_cost(epoch) for epoch in range(epochs))
        found[row.name] = {"epochs": epochs, "plain_steps": round(steps * cost)}
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--root", required=True, help="folder with cifar-10-batches-py")
    options.add_argument("--rounds", type=int, default=5, help="of the measured step")
    arguments = options.parse_args()
    grid = load_grid(RECIPE)
    rows = work(grid, arguments.root)
    about = {"recipe": RECIPE, "columns": len(grid.columns), "seeds": len(grid.seeds)}
    result = {**about, "step": plain_step(int(grid.base["train"]["batch_size"]), arguments.rounds), "rows": rows}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(RESULT.read_text())


if __name__ == "__main__":
    main()

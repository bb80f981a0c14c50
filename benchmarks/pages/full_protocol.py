"""docs/results/full-protocol.md: the paper's experiments at their own scale, for somebody with a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .sweep import Sweep
from .words import table, thousands

NAME = "paper-table1-published"
SPEEDS = (5, 20)  # TFLOP/s that a GPU might sustain on so small a network
FOLDER = f"benchmarks/results/{NAME}"
ABOUT = f"""# The full protocol

The tables here are made on processors, so they are small: frozen features, or images of 16 × 16 pixels. The paper's own
experiments (Table 1: eleven methods, nine noises, four seeds, an 8-layer network on the 50,000 images of CIFAR-10, 120
epochs) come with the package as a recipe, and have not been run. Whoever has a GPU can run them, or some of them: a
row, a column, a seed.

```sh
mslg sweep {NAME} --root DATA -o sweeps/table1 --row mslg --column feature-40 --dry-run  # settings
mslg sweep {NAME} --root DATA -o sweeps/table1 --row mslg --row cross-entropy --seed 0 -j 1
mslg table sweeps/table1  # beside the paper's numbers
```

DATA holds `cifar-10-batches-py`, as unpacked from its archive for Python. The first cell with feature-dependent noise
trains the networks that the noise is made with, 15 epochs each, and keeps their predictions in
`sweeps/table1/teacher.npz`. If it is killed, the same command continues. On a cluster, `--commands` prints one command
per cell ([sweeps](../sweeps.md#on-a-cluster)). `paper-table1-released` has the settings of the authors' code instead of
the paper's text ([the differences](../methods/mslg.md#differences-from-the-original)).

A test runs the recipe on the real images, from the files to the table, with the full network and every setting as
published but for the length: 60 steps, a third of them warm-up (about 3 minutes on one core).

```sh
MSLG_TEST_DATA=DATA pytest tests/sweeps/test_full_protocol.py
```"""
SEND = f"""## How to send cells back

A finished cell is one line of `sweeps/table1/cells.jsonl`: its numbers, curves, versions, commit and a hash of its
settings; no data, no paths. Open a pull request that adds your lines to those that are there:

```sh
cd {FOLDER}  # if there is none: make it, and copy cells.jsonl into it
tail -n +2 SWEEP/cells.jsonl >> cells.jsonl  # SWEEP: your sweeps/table1; without its first line
mslg sweep {NAME} -o . -j 0  # runs nothing, puts them in order
python ../../results_pages.py
```

A cell that is there twice counts once, the later one; one whose settings are not those of the recipe is put aside in
`stale.jsonl`. The table appears on this page, with the rows and columns that are complete."""


def page(results: Path, sweep: Sweep) -> str:
    """The page."""
    found = sweep.finished_part()
    there = ["## The table", found.provenance, found.notes, found.numbers()] if found.results else []
    return "\n\n".join([ABOUT, *_cost(results / "full_protocol.json"), SEND, *there])


def _cost(path: Path) -> list[str]:
    if not path.exists():
        return []
    found: dict[str, Any] = json.loads(path.read_text())
    step, runs = found["step"], found["columns"] * found["seeds"]
    steps = {row: each["plain_steps"] for row, each in found["rows"].items()}
    lines = [[row, str(found["rows"][row]["epochs"]), *_numbers(step, number)] for row, number in steps.items()]
    total = runs * sum(steps.values())
    lines.append([f"all, {runs} runs each", "", *_numbers(step, total)])
    lines.append(["all but mlnt", "", *_numbers(step, total - runs * steps["mlnt"])])
    head = ["one run of", "epochs", "plain steps", "hours of one core", *(f"hours at {s} TFLOP/s" for s in SPEEDS)]
    about = f"""## How long it takes

```sh
python benchmarks/full_protocol.py --root DATA
```

A plain training step of the network on a batch of {step["batch"]} is {step["gflop"]:.0f} GFLOP, and took
{step["seconds"]:.2f} s of one core here. Every method states what its epochs cost in such steps; the times follow. For
a GPU there is only the arithmetic, at speeds that it might sustain on so small a network: none was measured here. A run
announces an estimate of its own before it starts, measured on its machine, and a sweep says after its first cell how
long the others will take."""
    return [about, table(head, lines), "MLNT trains on ten synthetic labelings in every step: leave it for last."]


def _numbers(step: dict[str, float], steps: int) -> list[str]:
    hours = [steps * step["seconds"] / 3600, *(steps * step["gflop"] / (1000 * speed) / 3600 for speed in SPEEDS)]
    return [thousands(steps), *(f"{value:,.1f}" if value < 100 else f"{value:,.0f}" for value in hours)]

"""Two processes against one: time of a training step of the whole batch, one thread each.

    python benchmarks/two_ranks.py --rounds 3      # writes benchmarks/results/two_ranks.json

The paper's 8-layer CNN on made-up images of 32 × 32 pixels; the batch is divided between the processes. Fresh processes
in every round, one and two in turn; of each run the median over its steps but the first, of these the median over
rounds. Wall time needs two cores with nothing else to do; `cpu` is the processor time of one of the processes, which
other programs hardly change, communication included but not waiting for each other.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "two_ranks.json"
LEARNING = {"warm_up": 0, "prior": "given", "entropy_weight": 0.0, "finish": 0.0}
ROWS: dict[str, dict[str, Any]] = {
    "cross-entropy": {},
    "mslg": LEARNING,
    "mslg, fast": {**LEARNING, "mode": "head", "clean_every": 2},
}
CLASSES = 10


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def step_seconds(row: str, batch: int, width: int, steps: int) -> dict[str, float]:
    """Seconds of a step in this process, which may be one of several, by the name of a clock."""
    import torch

    from mslg.data.make_splits import make_splits
    from mslg.data.source import make_source
    from mslg.methods import METHODS
    from mslg.networks.cnn import CNN8
    from mslg.runtime.distributed import process_group
    from mslg.training.loop import Position, train
    from mslg.training.method import Task

    torch.set_num_threads(1)
    ended: list[dict[str, float]] = []

    def after_step(position: Position) -> None:
        ended.append({name: clock() for name, clock in CLOCKS.items()})

    with process_group(torch.device("cpu")):
        random = torch.Generator().manual_seed(0)
        images, clean = (torch.randn(count * batch, 3, 32, 32, generator=random).numpy() for count in (steps + 2, 1))
        label = torch.randint(CLASSES, (len(images),), generator=random).numpy()
        splits = make_splits(make_source(images, label), make_source(clean, label[:batch]), batch_size=batch, seed=0)
        task = Task(splits.source.label, CLASSES, lambda: CNN8(CLASSES, width=width), epochs=1, batch_size=batch)
        method = METHODS.load(row.partition(",")[0])(task, **ROWS[row])
        for _ in train(method, splits, epochs=1, after_step=after_step):
            pass
    return {name: statistics.median(after[name] - before[name] for before, after in pairwise(ended)) for name in CLOCKS}


def launched(count: int, arguments: list[str]) -> dict[str, float]:
    """Seconds of a step with this many processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", *arguments],
            env={**shared, "WORLD_SIZE": str(count), "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
        )
        for rank in range(count)
    ]
    printed = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode for worker in workers):
        raise SystemExit("a process has failed")
    every = [json.loads(each) for each in printed]
    return {name: max(each[name] for each in every) for name in CLOCKS}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=4, help="timed in each process")
    options.add_argument("--batch", type=int, default=128)
    options.add_argument("--width", type=int, default=64, help="of the CNN")
    options.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    options.add_argument("--output", type=Path, default=RESULT)
    options.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.worker:
        print(json.dumps(step_seconds(given.rows[0], given.batch, given.width, given.steps)))
        return
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in given.rows:
        sizes = ["--batch", str(given.batch), "--width", str(given.width), "--steps", str(given.steps)]
        taken: dict[int, list[dict[str, float]]] = {1: [], 2: []}
        for _ in range(given.rounds):
            for count, seconds in taken.items():
                seconds.append(launched(count, ["--rows", row, *sizes]))
        found[row] = {}
        for clock in CLOCKS:
            one, two = (statistics.median(each[clock] for each in seconds) for seconds in taken.values())
            found[row][clock] = {"one": round(one, 3), "two": round(two, 3), "times": round(one / two, 2)}
        print(row, found[row], flush=True)
    about = {"rounds": given.rounds, "steps": given.steps, "batch": given.batch, "width": given.width}
    given.output.write_text(json.dumps({**about, "seconds per step": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

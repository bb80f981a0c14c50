"""What a whole run of the default costs, in plain runs: processor time of training alone, interleaved.

    python benchmarks/run_cost.py        # writes benchmarks/results/run_cost.json

Digits with 40 % uniform noise and 100 clean samples, an MLP, 30 epochs. The issue list, the report and the comparison
are not part of it, for no method.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "run_cost.json"
ROWS: dict[str, dict[str, Any]] = {
    "plain": {"method": "cross-entropy"},
    "default": {},
    "meta": {"preset": "meta"},
    "fast": {"preset": "fast"},
}


def seconds(options: dict[str, Any], seed: int) -> float:
    """Processor time of the epochs of one run, evaluation included."""
    import torch

    from mslg.data.make_splits import make_splits
    from mslg.data.readers.digits import digits
    from mslg.fitting.prepare import build_method
    from mslg.networks.mlp import MLP
    from mslg.noise.uniform import uniform
    from mslg.runs.settings import DEFAULT_METHOD, Named
    from mslg.runtime.seeds import numpy_generator
    from mslg.training.loop import train
    from mslg.training.schedules import cosine
    from mslg.training.task import Task

    torch.set_num_threads(1)
    data = digits(seed=seed)
    made = uniform(data.train.label, 0.4, numpy_generator(seed, "noise"), classes=10, fill=True)
    splits = make_splits(data.train.with_label(made.label), 100, batch_size=64, seed=seed)
    task = Task(
        splits.source.label, 10, lambda: MLP(64, 10), epochs=30, batch_size=64, schedule=cosine, pairs=splits.pairs
    )
    named = Named(options.get("method", DEFAULT_METHOD), options.get("preset"))
    method = build_method(named, task, splits)
    begun = time.process_time()
    for _ in train(method, splits, epochs=30):
        pass
    return time.process_time() - begun


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--output", type=Path, default=RESULT)
    arguments = options.parse_args()
    logging.getLogger("mslg").setLevel(logging.ERROR)
    taken: dict[str, list[float]] = {name: [] for name in ROWS}
    for seed in range(arguments.rounds):
        for name, row in ROWS.items():
            taken[name].append(seconds(row, seed))
    plain = statistics.median(taken["plain"])
    found = {name: round(statistics.median(each) / plain, 2) for name, each in taken.items()}
    arguments.output.write_text(json.dumps({"rounds": arguments.rounds, "plain runs": found}, indent=1) + "\n")
    print(found)


if __name__ == "__main__":
    main()

"""What it costs and brings that freed memory stays with the process: processor time and the peak of resident memory.

    OMP_NUM_THREADS=1 python benchmarks/freed_memory.py --rounds 3      # prints a table

Steps of the networks of step_cost.py, of which the second to the sixth count, and whole runs on the feature vectors of
whole_run.py, of which the second counts. Every measurement is a fresh process, which keeps freed memory as a run does
or leaves it to glibc's defaults; rounds take turns, medians. Memory is counted from before the first step or run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

NETWORKS = {"8-layer CNN, batch 128": "cnn8", "ResNet-18, batch 32": "resnet18"}
MODES = ("plain", "exact", "recompute")
RUNS = {"`fast` on features": "fast", "default on features": None}
LEFT_ALONE = {"MALLOC_ARENA_TEST": "8"}  # of glibc, its default: whoever sets any of its variables is left alone


def measure(what: str) -> tuple[float, float]:
    """Seconds, and megabytes at the peak, in this process."""
    import torch

    from mslg.runtime.memory import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    network, _, mode = what.partition(" ")
    act = a_step(network, mode) if network in NETWORKS.values() else a_run(RUNS[what])
    from step_cost import resident

    before = resident("VmRSS")
    act()
    taken = []
    for _ in range(5 if network in NETWORKS.values() else 1):
        begun = time.process_time()
        act()
        taken.append(time.process_time() - begun)
    return statistics.median(taken), (resident("VmHWM") - before) / 1024


def a_step(network: str, mode: str) -> Callable[[], None]:
    """A training step."""
    from step_cost import KINDS, STEPS, Bench

    return STEPS[mode](Bench.build(KINDS[network]))


def a_run(preset: str | None) -> Callable[[], object]:
    """A whole run."""
    import logging
    import warnings

    from whole_run import features, fitted

    warnings.simplefilter("ignore")
    logging.getLogger("mslg").setLevel(logging.ERROR)
    problem = features(49_000, epochs=6)
    return lambda: fitted(problem, **({} if preset is None else {"preset": preset}))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--one", help="measure only this, in this process")
    arguments = options.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return
    rows = {f"{name}: {mode}": f"{network} {mode}" for name, network in NETWORKS.items() for mode in MODES}
    rows |= {name: name for name in RUNS}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(arguments.rounds):
        for row, what in rows.items():
            for policy, variables in (("returned", LEFT_ALONE), ("kept", {})):
                command = [sys.executable, __file__, "--one", what]
                answer = subprocess.run(command, env=os.environ | variables, stdout=subprocess.PIPE, check=True)
                found.setdefault((row, policy), []).append(json.loads(answer.stdout))
    print("| | returned: seconds | MB | kept: seconds | MB |\n|---|---:|---:|---:|---:|")
    for row in rows:
        cells = [
            f"{statistics.median(each[0] for each in found[row, policy]):.2f} | "
            f"{statistics.median(each[1] for each in found[row, policy]):.0f}"
            for policy in ("returned", "kept")
        ]
        print(f"| {row} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()

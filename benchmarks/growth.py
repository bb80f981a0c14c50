"""How the cost of training grows: time a sample over the number of samples, of classes, and the size of the network.

Three methods on the same network and data: cross entropy (the plain step), MSLG's exact step and its preset "fast". The
time is that of all that the loop does for a step: fetching the batch, the step, and folding the predictions into the
history. Inputs are made on the fly. Times are medians over interleaved rounds of four steps in one process with one
thread, so that a busy machine slows all alike.

    python benchmarks/growth.py                  print the numbers
    python benchmarks/growth.py --write          and keep them in benchmarks/results/growth.json
    python benchmarks/results_pages.py           draws docs/results/growth.svg from them
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from mslg.networks.cnn import CNN8
from mslg.networks.mlp import MLP
from synthetic import BATCH, Bench, tell

RESULT = Path(__file__).parent / "results" / "growth.json"
CYCLE = 4  # steps timed together: so many a kept clean gradient serves
INPUTS = 512
METHODS: dict[str, dict[str, Any]] = {
    "plain": {"method": "cross-entropy"},
    "exact": {"method": "mslg"},
    "fast": {"method": "mslg", "preset": "fast"},
}
USUAL = {"samples": 50_000, "classes": 10, "width": 256}
AXES: dict[str, dict[str, Any]] = {
    "samples": {"values": [10_000, 30_000, 100_000, 300_000, 1_000_000]},
    "classes": {"values": [10, 30, 100, 300, 1_000]},
    "width": {"values": [64, 128, 256, 512, 1_024, 2_048]},
    "cnn8": {"values": [4, 8, 16, 32], "rounds": 0.15},  # a step takes much longer
}


def _mlp(classes: int, *, width: int) -> nn.Module:
    return MLP(INPUTS, classes, hidden=[width])


def _cnn(classes: int, *, width: int) -> nn.Module:
    return CNN8(classes, width=width)


def measure(axis: str, values: list[int], rounds: int) -> list[dict[str, float]]:
    """Microseconds a sample at each value, of every method."""
    benches = {}
    parameters = {}
    for value in values:
        size = {**USUAL, "width" if axis == "cnn8" else axis: value}
        make: Callable[[int], nn.Module] = partial(_cnn if axis == "cnn8" else _mlp, width=size["width"])
        shape = (3, 32, 32) if axis == "cnn8" else (INPUTS,)
        parameters[value] = sum(parameter.numel() for parameter in make(size["classes"]).parameters())
        for name, settings in METHODS.items():
            benches[value, name] = Bench.build(size["samples"], size["classes"], make, shape, **settings).steps()
    taken: dict[tuple[int, str], list[float]] = {key: [] for key in benches}
    for number in range(rounds + 1):
        for key, stepping in benches.items():
            gc.collect()  # or one pays for what another has left behind
            begun = time.perf_counter()
            for _ in range(CYCLE):
                next(stepping)
            if number:
                taken[key].append((time.perf_counter() - begun) / (CYCLE * BATCH))
    return [
        {
            axis: value,
            "parameters": parameters[value],
            **{name: round(1e6 * median(taken[value, name]), 2) for name in METHODS},
        }
        for value in values
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"keep the numbers in results/{RESULT.name}")
    parser.add_argument("--rounds", type=int, default=25, help="rounds that count (default: %(default)s)")
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES), help="what grows (default: all)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    axes = {}
    for axis in options.axes:
        rounds = max(1, round(options.rounds * AXES[axis].get("rounds", 1)))
        axes[axis] = measure(axis, AXES[axis]["values"], rounds)
        print(f"{axis}: {axes[axis]}", file=sys.stderr, flush=True)
    if options.write and RESULT.exists():  # what was not measured again stays
        axes = {**json.loads(RESULT.read_text())["axes"], **axes}
    found = {"batch": BATCH, "usual": USUAL, "unit": "microseconds a sample", "axes": axes}
    tell(found, RESULT if options.write else None)


if __name__ == "__main__":
    main()

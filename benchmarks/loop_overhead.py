"""What the loop adds to the steps of a method: batches, random numbers, history, metrics, logging, checkpoints.

The same steps are taken bare, on prepared batches, and through the loop of `mslg.fit`, an epoch of each in turn. Inside
the loop every step is timed too: what an epoch takes beside its steps is the overhead. Evaluation and checkpoint,
which come once an epoch, are told apart from it. Medians over the rounds. On a busy machine, with one thread, take the
processor's time (--clock cpu).

Image files are measured last: what decoding a batch takes, and how long a step has to wait for it when worker processes
read ahead (always in wall time).

    python benchmarks/loop_overhead.py                     a table
    python benchmarks/loop_overhead.py --images 2          image files too, with two workers
    python benchmarks/loop_overhead.py --write             into benchmarks/results/loop_overhead.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from mslg.data.image_stores import ImageStore
from mslg.data.images import Frame
from mslg.data.make_splits import make_splits
from mslg.data.samples import Samples
from mslg.data.source import make_source
from mslg.data.splits import Splits
from mslg.methods import METHODS
from mslg.networks.cnn import CNN8
from mslg.networks.mlp import MLP
from mslg.runs.folder import Run
from mslg.runs.record import recorded
from mslg.runtime.files import write_atomically
from mslg.runtime.machine import versions
from mslg.training.evaluation import Evaluation
from mslg.training.loop import Position
from mslg.training.method import Method, Task
from mslg.training.prediction_history import PredictionHistory
from mslg.training.progress import Lines

RESULT = Path(__file__).parent / "results" / "loop_overhead.json"
CLASSES = 10
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
# Label learning from the first step on, and nothing after the last.
LEARNERS: dict[str, dict[str, Any]] = {"cross-entropy": {}, "mslg": {"prior": "given", "warm_up": 0, "finish": 0}}


@dataclass(frozen=True)
class Kind:
    """A network to measure."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    steps: int  # an epoch


KINDS = {
    "mlp, batch 64": Kind(lambda: MLP(64, CLASSES), (64,), 64, 40),
    "mlp, batch 128": Kind(lambda: MLP(64, CLASSES), (64,), 128, 40),
    "cnn8 of width 8, batch 64": Kind(lambda: CNN8(CLASSES, width=8), (3, 32, 32), 64, 6),
    "cnn8 of width 16, batch 64": Kind(lambda: CNN8(CLASSES, width=16), (3, 32, 32), 64, 4),
    "cnn8 of width 16, batch 128": Kind(lambda: CNN8(CLASSES, width=16), (3, 32, 32), 128, 2),
}


class Timer:
    """Adds up what calls of functions take."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.total = clock, 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            begun = self.clock()
            try:
                return function(*args, **kwargs)
            finally:
                self.total += self.clock() - begun

        return called

    def taken(self) -> float:
        """Since this was last asked."""
        total, self.total = self.total, 0.0
        return total


def problem(kind: Kind, learner: str, epochs: int) -> tuple[Splits, Evaluation, Callable[[], Method]]:
    random = torch.Generator().manual_seed(0)

    def drawn(count: int) -> tuple[Tensor, Tensor]:
        return torch.randn(count, *kind.shape, generator=random), torch.randint(CLASSES, (count,), generator=random)

    noisy, clean, test = (
        make_source(*drawn(kind.steps * kind.batch)),
        make_source(*drawn(250)),
        make_source(*drawn(200)),
    )
    data = make_splits(noisy, clean, batch_size=kind.batch, clean_batch_size=kind.batch, seed=0)
    evaluation = Evaluation(data, Samples(test.store, torch.arange(len(test)), test.label), noisy.label)

    def build() -> Method:
        torch.manual_seed(0)
        method: Method = METHODS.load(learner)(
            Task(noisy.label, CLASSES, kind.make, epochs, kind.batch), **LEARNERS[learner]
        )
        return method.train()

    return data, evaluation, build


def measure(kind: Kind, learner: str, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Milliseconds of a bare step and of one in the loop, of what the loop adds to it, and of what ends an epoch."""
    data, evaluation, build = problem(kind, learner, rounds + 1)
    batches, verified = list(data.batches(0)), data.clean_batches(0)
    clean = cycle([next(verified) for _ in range(4)])
    bare, looped = build(), build()
    step, examined, saved = Timer(clock), Timer(clock), Timer(clock)
    looped.step = step.around(looped.step)  # type: ignore[method-assign]
    found: dict[str, list[float]] = {name: [] for name in ("bare", "step", "added", "evaluation", "checkpoint")}
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", {})
        run.save = saved.around(run.save)  # type: ignore[method-assign]
        run.append = saved.around(run.append)  # type: ignore[method-assign]
        records = recorded(
            looped,
            data,
            examined.around(evaluation),  # type: ignore[arg-type]
            Position(PredictionHistory(looped.task.given, CLASSES)),
            run=run,
            display=Lines(lines=1),
            checkpoint_seconds=600,
        )
        for number in range(rounds + 1):
            begun = clock()
            for batch in batches:
                bare.step(batch, clean)
            between = clock()
            next(records)
            whole = clock() - between
            taken = {"step": step.taken(), "evaluation": examined.taken(), "checkpoint": saved.taken()}
            if not number:
                continue  # to warm up
            for name, value in taken.items():
                found[name].append(value / (kind.steps if name == "step" else 1))
            found["bare"].append((between - begun) / kind.steps)
            found["added"].append((whole - sum(taken.values())) / kind.steps)
    middle = {f"{name}_ms": round(1000 * median(values), 4) for name, values in found.items()}
    shares = [added / taken for added, taken in zip(found["added"], found["step"], strict=True)]
    return {**middle, "added_percent": round(100 * median(shares), 2)}


def measure_images(workers: int, count: int = 1024, side: int = 256, batch: int = 64) -> dict[str, float]:
    """Milliseconds of decoding a batch of JPEG files, of a step, and of waiting for workers that read ahead of it."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        coarse = random.integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)
        for number, pixels in enumerate(coarse):  # smooth, as photographs are
            Image.fromarray(pixels).resize((side, side)).save(folder / f"{number}.jpg")
        paths = [f"{number}.jpg" for number in range(count)]
        network = CNN8(CLASSES, width=16)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

        def step(inputs: Tensor) -> None:
            optimizer.zero_grad()
            network(inputs).square().mean().backward()
            optimizer.step()

        waits: dict[int, list[float]] = {}
        steps: list[float] = []
        for used in (0, workers):
            store = ImageStore(paths, folder, Frame(128, 128), workers=used)
            stream: Iterator[Any] = store.batches(torch.randperm(count).split(batch))
            waits[used] = []
            for _ in range(count // batch):
                begun = time.perf_counter()
                inputs = next(stream)
                waits[used].append(time.perf_counter() - begun)
                begun = time.perf_counter()
                step(inputs)
                steps.append(time.perf_counter() - begun)
    return {
        "workers": workers,
        "decode_ms": round(1000 * median(waits[0]), 2),
        "step_ms": round(1000 * median(steps), 2),
        "wait_ms": round(1000 * median(waits[workers][2:]), 2),  # without the start of the processes
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="epochs that count (default: 9)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for a busy machine (default: wall)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="networks (default: all)")
    parser.add_argument("--images", type=int, default=0, metavar="WORKERS", help="measure image files too")
    parser.add_argument("--write", action="store_true", help=f"into results/{RESULT.name}")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for name in options.kinds:
        for learner in LEARNERS:
            found[f"{learner}, {name}"] = row = measure(KINDS[name], learner, options.rounds, CLOCKS[options.clock])
            print(f"{learner + ', ' + name:<45} {row}", file=sys.stderr, flush=True)
    result = {
        "command": " ".join(["python benchmarks/loop_overhead.py", *sys.argv[1:]]),
        "machine": f"{os.cpu_count()} CPU cores, {torch.get_num_threads()} threads, {options.clock} time",
        "versions": versions(),
        "loops": found,
    }
    if options.images:
        result["images"] = measure_images(options.images)
    if options.write:
        write_atomically(RESULT, json.dumps(result, indent=1).encode() + b"\n")
    if options.json:
        print(json.dumps(result))
        return
    print(
        "| | bare step | step in the loop | the loop adds | | evaluation | checkpoint |\n"
        "|---|---:|---:|---:|---:|---:|---:|"
    )
    for name, row in found.items():
        times = [f"{row[f'{part}_ms']:.2f} ms" for part in ("bare", "step", "added")]
        ends = [f"{row[f'{part}_ms']:.0f} ms" for part in ("evaluation", "checkpoint")]
        print(" | ".join([f"| {name}", *times, f"{row['added_percent']:.1f} %", *ends]) + " |")
    if "images" in result:
        print(
            "images: {decode_ms} ms to decode a batch, {step_ms} ms a step, {wait_ms} ms waited".format(
                **result["images"]
            )
        )


if __name__ == "__main__":
    main()

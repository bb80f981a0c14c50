"""What a whole run of the default costs, in plain runs: processor time of training alone, interleaved.

    python benchmarks/run_cost.py        # writes benchmarks/results/run_cost.json

Made-up samples of 10 classes with 40 % uniform noise, 100 of them clean, and three networks. The issue list, the report
and the comparison are not part of it, for no method.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

RESULT = Path(__file__).parent / "results" / "run_cost.json"
ROWS: dict[str, dict[str, Any]] = {
    "plain": {"method": "cross-entropy"},
    "default": {},
    "meta": {"preset": "meta"},
    "fast": {"preset": "fast"},
}


class Kind(NamedTuple):
    """A data set and a network."""

    samples: int
    shape: tuple[int, ...]
    batch: int
    epochs: int
    network: Callable[[], Any]


def _mlp(inputs: int) -> Any:
    from mslg.networks.mlp import MLP

    return MLP(inputs, 10)


def _cnn() -> Any:
    from mslg.networks.cnn import CNN8

    return CNN8(10, width=16)


KINDS = {
    "MLP on 64 inputs, batch 64": Kind(1200, (64,), 64, 30, partial(_mlp, 64)),
    "MLP on 256 features, batch 128": Kind(6000, (256,), 128, 30, partial(_mlp, 256)),
    "8-layer CNN of width 16, 16 × 16 pixels": Kind(5120, (3, 16, 16), 128, 20, _cnn),
}


def seconds(kind: Kind, options: dict[str, Any], seed: int) -> float:
    """Processor time of the epochs of one run, evaluation included."""
    import torch

    from mslg.data.make_splits import make_splits
    from mslg.data.source import make_source
    from mslg.fitting.prepare import build_method
    from mslg.runs.settings import DEFAULT_METHOD, Named
    from mslg.training.loop import train
    from mslg.training.schedules import cosine
    from mslg.training.task import Task

    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(seed)
    true = torch.randint(10, (kind.samples,), generator=random)
    centre = torch.randn(10, *kind.shape, generator=random)
    inputs = centre[true] + torch.randn(kind.samples, *kind.shape, generator=random)
    wrong = torch.rand(kind.samples, generator=random) < 0.4
    given = torch.where(wrong, torch.randint(10, (kind.samples,), generator=random), true)
    source = make_source(inputs.numpy(), given.numpy(), verified_labels=true.numpy())
    splits = make_splits(source, 100, batch_size=kind.batch, seed=seed)
    task = Task(
        splits.source.label,
        10,
        kind.network,
        epochs=kind.epochs,
        batch_size=kind.batch,
        schedule=cosine,
        pairs=splits.pairs,
    )
    named = Named(options.get("method", DEFAULT_METHOD), options.get("preset"))
    method = build_method(named, task, splits)
    begun = time.process_time()
    for _ in train(method, splits, epochs=kind.epochs):
        pass
    return time.process_time() - begun


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--output", type=Path, default=RESULT)
    arguments = options.parse_args()
    logging.getLogger("mslg").setLevel(logging.ERROR)
    found = {}
    for name, kind in KINDS.items():
        taken: dict[str, list[float]] = {row: [] for row in ROWS}
        for seed in range(arguments.rounds):
            for row, settings in ROWS.items():
                taken[row].append(seconds(kind, settings, seed))
        plain = statistics.median(taken["plain"])
        found[name] = {row: round(statistics.median(each) / plain, 2) for row, each in taken.items()}
        print(name, found[name], flush=True)
    arguments.output.write_text(
        json.dumps({"rounds": arguments.rounds, "plain runs": found}, indent=1, ensure_ascii=False) + "\n"
    )


if __name__ == "__main__":
    main()

"""Where the time of a run on feature vectors goes: processor time of its parts, in bare training loops.

    python benchmarks/run_parts.py --rounds 3        # prints a table; `fast` and the default

The run is that of benchmarks/whole_run.py on 49,000 feature vectors, one thread, medians over rounds that take turns
with the bare loop. Parts are timed from outside, so they include what they call.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from whole_run import bare_loop, features, fitted

PARTS = {
    "deployed network, its steps": [("mslg.methods.cross_fitted.method", "CrossFitted", "_final_step")],
    "fold networks, their steps": [
        ("mslg.methods.cross_fitted.method", "CrossFitted", "_noisy_step"),
        ("mslg.methods.cross_fitted.method", "CrossFitted", "_forward_step"),
        ("mslg.methods.cross_fitted.fold_networks", "FoldNetworks", "fine_tune_folds"),
    ],
    "predictions of all samples out of fold": [
        ("mslg.methods.cross_fitted.fold_networks", "FoldNetworks", "predict_training"),
    ],
    "ridge regression": [
        ("mslg.methods.cross_fitted.ridge", "RidgeSamples", "fit"),
        ("mslg.methods.cross_fitted.ridge", "RidgeSamples", "predicted_together"),
    ],
    "the list and its files": [("mslg.runs.execute", None, "_judged")],
}


@contextmanager
def timed(taken: Counter[str]) -> Iterator[None]:
    """Inside, the time that each part takes is added up."""
    from importlib import import_module

    replaced: list[tuple[Any, str, Any]] = []
    for part, places in PARTS.items():
        for module, kind, name in places:
            owner = import_module(module) if kind is None else getattr(import_module(module), kind)
            replaced.append((owner, name, getattr(owner, name)))
            setattr(owner, name, _counted(replaced[-1][2], part, taken))
    try:
        yield
    finally:
        for owner, name, original in replaced:
            setattr(owner, name, original)


def _counted(act: Callable[..., Any], part: str, taken: Counter[str]) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **named: Any) -> Any:
        begun = time.process_time()
        try:
            return act(*arguments, **named)
        finally:
            taken[part] += time.process_time() - begun

    return wrapped


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    arguments = options.parse_args()
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("mslg").setLevel(logging.ERROR)
    problem = features(49_000, epochs=6)
    bare_loop(problem._replace(epochs=1))  # whatever happens only once
    found: dict[str, dict[str, list[float]]] = {"fast": {}, "default": {}}
    for _ in range(arguments.rounds):
        for row, rows in found.items():
            begun = time.process_time()
            bare_loop(problem)
            bare = time.process_time() - begun
            taken: Counter[str] = Counter()
            begun = time.process_time()
            with timed(taken):
                fitted(problem, **({"preset": "fast"} if row == "fast" else {}))
            taken["all"] = time.process_time() - begun
            taken["the rest"] = 2 * taken["all"] - sum(taken.values())
            for part, seconds in taken.items():
                rows.setdefault(part, []).append(seconds / bare)
    print("| in bare training loops | `fast` | default |\n|---|---:|---:|")
    for part in (*PARTS, "the rest", "all"):
        columns = [statistics.median(rows.get(part, [0.0])) for rows in found.values()]
        print(f"| {part} |", " | ".join(f"{each:.2f}" for each in columns), "|")


if __name__ == "__main__":
    main()

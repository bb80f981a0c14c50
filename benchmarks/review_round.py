"""One round of review with the true labels, then a warm fit: which 200 samples are worth looking at?

    python benchmarks/review_round.py --root DATA     # writes benchmarks/results/review_round.json

A run is fitted, 200 of its training samples are reviewed by somebody who is never wrong, and training goes on from it
with these decisions, for a third of its epochs. Reviewed are (a) `top`: the top of the run's list, (b) `random`
samples, (c) `next`: what `mslg review-next` picks; (d) `none` goes on without a review. Digits with 200 clean samples
and 40 % uniform or pair noise, and CIFAR-10 features with 200 and 1,000 clean samples and 40 % uniform or
feature-dependent noise; four seeds. All four continue the same run of a seed, so their differences are paired.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "review_round.json"
REVIEWED = 200
RATE = 0.4
WAYS = ("none", "random", "top", "next")
TEACHER = {"network": "mlp", "network.hidden": [256], "network.dropout": 0.5}


class Problem(NamedTuple):
    """Data, noise and how it is trained."""

    data: str
    noise: str
    clean: int
    settings: dict[str, Any]
    noise_settings: dict[str, Any]


DIGITS = {"epochs": 30, "batch_size": 64, "learning_rate": 0.05}
FEATURES = {"epochs": 12, "batch_size": 256, "learning_rate": 0.1}
PROBLEMS = [
    Problem("digits", "uniform", 200, DIGITS, {"fill": True}),
    Problem("digits", "pair", 200, DIGITS, {}),
    *(
        Problem("cifar10-features", noise, clean, FEATURES, settings)
        for clean in (200, 1000)
        for noise, settings in (("uniform", {"fill": True}), ("feature-dependent", TEACHER))
    ),
]


def cell(problem: Problem, seed: int, root: Path | None, cache: Path, reviewed: int = REVIEWED) -> dict[str, Any]:
    """One seed: the run, and each way to go on from it."""
    import torch

    from mslg.data.open import open_named
    from mslg.fitting.fit import fit
    from mslg.networks.mlp import MLP
    from mslg.runs.open_data import corrupted
    from mslg.runtime.seeds import numpy_generator

    torch.set_num_threads(1)
    bundle = open_named(problem.data, seed=seed, root=root)
    settings = dict(problem.noise_settings)
    if "network" in settings:
        settings["cache"] = str(cache / "teacher.npz")
    source = bundle.train.with_label(corrupted(bundle.train, problem.noise, RATE, seed=seed, settings=settings).label)
    inputs = bundle.train.store.tensors[0].numel()  # type: ignore[attr-defined]
    small = problem.data == "digits"
    network: Callable[[], Any] = (
        partial(MLP, inputs, 10) if small else partial(MLP, inputs, 10, hidden=(256,), dropout=0.5)
    )
    with tempfile.TemporaryDirectory() as folder:
        run = partial(fit, network, source, problem.clean, test=bundle.test, seed=seed, progress=False)
        first = run(output=Path(folder) / "run", **problem.settings)
        labels = first.labels
        choices = {
            "top": labels.sort_values("rank")["id"].head(reviewed).tolist(),
            "random": numpy_generator(seed, "review").choice(labels["id"].to_numpy(), reviewed, replace=False).tolist(),
            "next": first.review_next(reviewed)["id"].tolist(),
        }
        accuracy = {"before": first.summary["last"]["test/accuracy"]}
        wrong = {}
        epochs = max(2, round(problem.settings["epochs"] / 3))
        for way in WAYS:
            file = None
            if way in choices:
                file = Path(folder) / f"{way}.csv"
                wrong[way] = decide(file, choices[way], labels, source)
            again = run(from_run=first, decisions=file, **{**problem.settings, "epochs": epochs})
            accuracy[way] = again.summary["last"]["test/accuracy"]
    about = {"data": problem.data, "noise": problem.noise, "clean": problem.clean, "seed": seed, "reviewed": reviewed}
    return {**about, "test": accuracy, "reviewed_that_were_wrong": wrong}


def decide(path: Path, ids: list[str], labels: Any, source: Any) -> float:
    """Write what a reviewer who is never wrong decides; returns the share of given labels that were wrong."""
    from mslg.review.decisions import Decision, as_csv

    true = {name: source.classes[int(label)] for name, label in zip(source.ids, source.true_label, strict=True)}
    decisions = {}
    for row in labels.set_index("id").loc[ids].itertuples():
        label = true[row.Index]
        kind = "keep" if label == row.given_label else "accept" if label == row.suggested_label else "relabel"
        decisions[row.Index] = Decision(row.Index, kind, label, row.given_label, row.suggested_label)
    path.write_bytes(as_csv(decisions))
    return float(np.mean([each.decision != "keep" for each in decisions.values()]))


def interval(values: list[float]) -> dict[str, float | int | None]:
    """The mean, and a 95 % interval of it by Student's t."""
    from scipy.stats import t

    mean = float(np.mean(values))
    if len(values) < 2:
        return {"mean": mean, "low": None, "high": None, "seeds": len(values)}
    half = float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    return {"mean": mean, "low": mean - half, "high": mean + half, "seeds": len(values)}


def compared(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each problem the gain of each way over the run before, and over a random review, seed by seed."""
    rows = []
    for key in dict.fromkeys((each["data"], each["noise"], each["clean"]) for each in cells):
        own = [each["test"] for each in cells if (each["data"], each["noise"], each["clean"]) == key]
        row: dict[str, Any] = {"data": key[0], "noise": key[1], "clean": key[2]}
        row["accuracy"] = {way: interval([each[way] for each in own]) for way in ("before", *WAYS)}
        row["gain"] = {way: interval([each[way] - each["before"] for each in own]) for way in WAYS}
        for other in ("random", "none"):
            others = [way for way in WAYS if way not in (other, "none")]
            row[f"over_{other}"] = {way: interval([each[way] - each[other] for each in own]) for way in others}
        rows.append(row)
    return rows


def words(row: dict[str, Any]) -> str:
    """A problem in one line, in points."""
    parts = [f"{way} {100 * row['gain'][way]['mean']:+.2f}" for way in WAYS]
    before = 100 * row["accuracy"]["before"]["mean"]
    return f"{row['data']}, {row['noise']}, {row['clean']} clean: {before:.2f} % before; " + ", ".join(parts)


def main() -> None:
    from mslg.runtime.machine import versions

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="the folder of cifar10_features.npz; without it digits only")
    parser.add_argument("--seeds", type=int, nargs="+", default=[4, 5, 6, 7], help="others than those of the design")
    parser.add_argument("--data", choices=["digits", "cifar10-features"], help="only this")
    parser.add_argument("--noise", help="only this")
    parser.add_argument("--clean", type=int, help="only this number of clean samples")
    parser.add_argument("--reviewed", type=int, default=REVIEWED)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    chosen = [
        problem
        for problem in PROBLEMS
        if arguments.data in (None, problem.data)
        and arguments.noise in (None, problem.noise)
        and arguments.clean in (None, problem.clean)
        and (problem.data == "digits" or arguments.root is not None)
    ]
    jobs = [(problem, seed) for problem in chosen for seed in arguments.seeds]
    cells: list[dict[str, Any]] = []
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache, ProcessPoolExecutor(arguments.processes) as pool:
        one = partial(cell, root=arguments.root, cache=Path(cache), reviewed=arguments.reviewed)
        for done in pool.map(one, *zip(*jobs, strict=True)):
            cells.append(done)
            print(f"{len(cells)}/{len(jobs)} {json.dumps(done)}", flush=True)
            found = {"versions": versions(), "rate": RATE, "cells": cells, "problems": compared(cells)}
            arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    for row in compared(cells):
        print(words(row))


if __name__ == "__main__":
    main()

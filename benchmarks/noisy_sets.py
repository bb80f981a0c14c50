"""The noisy sets on which lists of label issues are measured: digits, and CIFAR-10 as frozen features; and the cells
of such a measurement, one a set and seed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

TEACHER = {"network": "mlp", "network.hidden": [256], "network.dropout": 0.5}
FEATURES: dict[str, Any] = {"epochs": 6, "batch_size": 256, "learning_rate": 0.1, "weight_decay": 1e-4}
DIGITS: dict[str, Any] = {"epochs": 30, "batch_size": 64, "learning_rate": 0.05}


def settings(
    name: str, seed: int, *, root: str, cache: Path, clean: int, clean_from: str | None = None, method: str = "mslg"
) -> Any:
    """The recipe of a run on one of them: `features uniform 0.4`, `digits pair 0.4`"""
    from mslg.runs.recipes import checked

    data, kind, rate = name.split()
    noise: dict[str, Any] = {"fill": True} if kind == "uniform" else {}
    if kind == "feature-dependent":
        noise = {**TEACHER, "cache": str(cache / "teacher.npz")}
    if kind == "feature-dependent-released":
        noise = {"probabilities": f"{root}/cifar10_student_probs.npy"}
    table: dict[str, Any] = {"noise": kind, "rate": float(rate), "clean": clean, "reveal_noise": False}
    if clean_from is not None:
        table["clean_from"] = clean_from
    if data == "digits":
        chosen: dict[str, Any] = {"data": {"source": "digits"}, "network": {"name": "mlp"}, "train": DIGITS}
    else:
        chosen = {
            "data": {"source": "cifar10-features", "root": root},
            "network": {"name": "mlp", "hidden": [256], "dropout": 0.5},
            "train": FEATURES,
        }
    chosen["data"] |= table
    return checked({**chosen, "method": {"name": method}, "noise": noise, "train": {**chosen["train"], "seed": seed}})


def run(recipe: Any, **options: Any) -> Any:
    """Carry it out, quietly, on one core."""
    import logging

    import torch

    from mslg.fitting.fit import fit_settings

    torch.set_num_threads(1)
    logging.getLogger("mslg").setLevel(logging.ERROR)
    return fit_settings(recipe, progress=False, **options)


def arguments_of(about: str | None, *, sets: list[str], seeds: list[int], output: Path) -> argparse.ArgumentParser:
    """The command line of a measurement."""
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--root", required=True, help="where the CIFAR-10 features are")
    options.add_argument("--seeds", type=int, nargs="+", default=seeds)
    options.add_argument("--sets", nargs="+", default=sets)
    options.add_argument("--cache", type=Path, default=Path("runs/issue_detection"), help="for the noise's teacher")
    options.add_argument("-j", "--processes", type=int, default=2)
    options.add_argument("--output", type=Path, default=output)
    return options


def run_missing(
    cell: Callable[..., dict[str, Any]], arguments: argparse.Namespace, **kind: str
) -> list[dict[str, Any]]:
    """Run the cells that the output lacks, each written down when finished; returns all there are of this kind."""
    from mslg.runtime.machine import versions

    arguments.cache.mkdir(parents=True, exist_ok=True)
    known = json.loads(arguments.output.read_text())["cells"] if arguments.output.exists() else []

    def of_kind() -> list[dict[str, Any]]:
        return [each for each in known if all(each[key] == value for key, value in kind.items())]

    there = {(each["set"], each["seed"]) for each in of_kind()}
    jobs = [(name, seed) for seed in arguments.seeds for name in arguments.sets if (name, seed) not in there]
    with ProcessPoolExecutor(arguments.processes) as pool:
        for found in pool.map(partial(cell, root=arguments.root, cache=arguments.cache, **kind), jobs):
            known.append(found)
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.write_text(json.dumps({"versions": versions(), "cells": known}, indent=1) + "\n")
    return of_kind()

"""The noisy sets on which lists of label issues are measured: digits, and CIFAR-10 as frozen features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

TEACHER = {"network": "mlp", "network.hidden": [256], "network.dropout": 0.5}
FEATURES: dict[str, Any] = {"epochs": 6, "batch_size": 256, "learning_rate": 0.1, "weight_decay": 1e-4}
DIGITS: dict[str, Any] = {"epochs": 30, "batch_size": 64, "learning_rate": 0.05}


def settings(name: str, seed: int, *, root: str, cache: Path, clean: int, clean_from: str | None = None) -> Any:
    """The recipe of a run on one of them: `features uniform 0.4`, `digits pair 0.4`, …"""
    from mslg.recipe import checked

    data, kind, rate = name.split()
    noise: dict[str, Any] = {"fill": True} if kind == "uniform" else {}
    if kind == "feature-dependent":
        noise = {**TEACHER, "cache": str(cache / "teacher.npz")}
    if kind == "feature-dependent-released":
        noise = {"probabilities": f"{root}/cifar10_student_probs.npy"}
    table: dict[str, Any] = {"noise": kind, "rate": float(rate), "clean": clean, "told": False}
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
    return checked({**chosen, "noise": noise, "train": {**chosen["train"], "seed": seed}})


def run(recipe: Any, fit: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Carry it out, quietly, on one core."""
    import logging

    import torch

    from mslg.fitting import fit as fit_data
    from mslg.recipe import run_recipe

    torch.set_num_threads(1)
    logging.getLogger("mslg").setLevel(logging.ERROR)
    return run_recipe(recipe, fit or fit_data, progress=False, **options)

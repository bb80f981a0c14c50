"""How far training agreement is above clean accuracy, in runs that memorise wrong labels, and in runs that do not.

    python benchmarks/memorisation.py [--root DATA] [--seeds 0 1]

Sets the thresholds of `mslg.issues.memorised`. A run has memorised if it gives most of the wrong labels back: its
finished network predicts at least half of the wrong given labels of its training samples. Digits with made noise;
with --root, 3,000 CIFAR-10 features too. Prints a row per run: share of wrong labels given back, agreement with given
labels, accuracy on held-out clean samples, the excess (see `Fit`), and the clean loss
as a fraction of that of guessing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from mslg.fitting.fit import fit_settings
from mslg.issues.memorised import Fit, measured_fit
from mslg.runs import execute

RESULTS = Path(__file__).parent / "results" / "memorisation.json"
RUNS: dict[str, dict[str, Any]] = {
    "default": {"method": {"name": "cross-fitted"}},
    "cross entropy, 3 epochs": {"method": {"name": "cross-entropy"}, "train": {"epochs": 3}},
    "cross entropy, 10 epochs": {"method": {"name": "cross-entropy"}, "train": {"epochs": 10}},
    "cross entropy, 100 epochs, no dropout": {
        "method": {"name": "cross-entropy"},
        "train": {"epochs": 100, "weight_decay": 0.0},
        "network": {"name": "mlp", "dropout": 0.0, "hidden": [512]},
    },
    "pencil": {"method": {"name": "pencil"}},
    "mslg": {"method": {"name": "mslg"}},
}
NOISES = (("uniform", 0.1), ("uniform", 0.4), ("uniform", 0.7), ("pair", 0.3))


def measured(settings: dict[str, Any]) -> tuple[Fit, float]:
    """What the warning looks at, and the share of wrong labels that the network gives back."""
    seen: dict[str, Any] = {}

    def spy(history: Any, data: Any, evidence: Any) -> None:
        true = data.source.true_label[data.train.index]
        predicted = history.said(data.train.index).argmax(1)
        wrong = data.train.label != true
        seen["back"] = float((predicted[wrong] == data.train.label[wrong]).double().mean())
        seen["fit"] = measured_fit(history, data, evidence)

    before = execute.memorised
    execute.memorised = spy  # type: ignore[assignment]
    try:
        fit_settings(settings, progress=False, compare=False)
    finally:
        execute.memorised = before
    return seen["fit"], seen["back"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    torch.set_num_threads(1)
    sets: dict[str, dict[str, Any]] = {"digits": {"source": "digits", "clean": 200}}
    if options.root is not None:
        sets["features"] = {"source": "cifar10-features", "root": str(options.root), "clean": 200, "subset": 3000}
    rows = []
    for seed in options.seeds:
        for name, data in sets.items():
            for noise, rate in NOISES:
                for title, tables in RUNS.items():
                    settings = {**tables, "data": {**data, "noise": noise, "rate": rate}}
                    settings["train"] = {"seed": seed, **tables.get("train", {})}
                    fit, back = measured(settings)
                    row = {"set": name, "noise": f"{noise} {rate:g}", "run": title, "seed": seed, "given_back": back}
                    rows.append({**row, **fit._asdict(), "excess": fit.excess, "of_chance": fit.of_chance})
                    numbers = back, fit.agreement, fit.right, fit.excess, fit.of_chance
                    print(f"{name} {noise} {rate:g} {title} {seed}:", *(f"{each:.2f}" for each in numbers), flush=True)
    RESULTS.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    for kind, chosen in (("memorised", True), ("did not", False)):
        some = [row for row in rows if (row["given_back"] >= 0.5) == chosen]
        excess = sorted(row["excess"] for row in some)
        losses = sorted(row["of_chance"] for row in some)
        print(
            kind, len(some), "excess", [round(each, 2) for each in excess], "loss", [round(each, 2) for each in losses]
        )


if __name__ == "__main__":
    main()

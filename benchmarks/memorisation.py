"""How far training agreement is above clean accuracy, in runs that memorise wrong labels, and in runs that do not.

    python benchmarks/memorisation.py [--root DATA] [--seeds 0 1]
    python benchmarks/memorisation.py --clean 100          # none held out

Sets the thresholds of `mslg.issues.memorised`. A run has memorised if it gives most of the wrong labels back: its
finished network predicts at least half of the wrong given labels of its training samples. Digits with made noise;
with --root, 3,000 CIFAR-10 features too. Prints a row per run: share of wrong labels given back, agreement with given
labels, accuracy on held-out clean samples, the excess (see `Fit`), the clean loss as a fraction of that of guessing,
and what is said: a warning, that it is unknown, or nothing. With fewer than 200 clean samples none is held out, and
some methods are trained on all of them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from mslg.fitting.fit import fit_settings
from mslg.issues.memorised import Fit, Memorised, measured_fit, memorised
from mslg.runs import execute

RESULTS = Path(__file__).parent / "results"
LONG: dict[str, Any] = {
    "train": {"epochs": 100, "weight_decay": 0.0},
    "network": {"name": "mlp", "dropout": 0.0, "hidden": [512]},
}
RUNS: dict[str, dict[str, Any]] = {
    "default": {"method": {"name": "cross-fitted"}},
    "cross entropy, 3 epochs": {"method": {"name": "cross-entropy"}, "train": {"epochs": 3}},
    "cross entropy, 10 epochs": {"method": {"name": "cross-entropy"}, "train": {"epochs": 10}},
    "cross entropy, 100 epochs, no dropout": {"method": {"name": "cross-entropy"}, **LONG},
    "pencil": {"method": {"name": "pencil"}},
    "mslg": {"method": {"name": "mslg"}},
}
WITHOUT_HELD_OUT: dict[str, dict[str, Any]] = {
    "noisy + clean, 100 epochs, no dropout": {"method": {"name": "noisy-plus-clean"}, **LONG},
    "meta-weight-net, 100 epochs, no dropout": {"method": {"name": "meta-weight-net"}, **LONG},
}
NOISES = (("uniform", 0.1), ("uniform", 0.4), ("uniform", 0.7), ("pair", 0.3))


def measured(settings: dict[str, Any]) -> tuple[Fit, float, str]:
    """What the warning looks at, the share of wrong labels that the network gives back, and what is said."""
    seen: dict[str, Any] = {}

    def spy(history: Any, data: Any, evidence: Any, method: Any) -> Memorised:
        true = data.source.true_label[data.train.index]
        predicted = history.said(data.train.index).argmax(1)
        wrong = data.train.label != true
        seen["back"] = float((predicted[wrong] == data.train.label[wrong]).double().mean())
        seen["fit"] = measured_fit(history, data, evidence, method)
        told = memorised(history, data, evidence, method)
        seen["told"] = "warning" if told.warning else "unknown" if told.unknown else "nothing"
        return told

    before = execute.memorised
    execute.memorised = spy  # type: ignore[assignment]
    try:
        fit_settings(settings, progress=False, compare=False)
    finally:
        execute.memorised = before
    return seen["fit"], seen["back"], seen["told"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--clean", type=int, default=200)
    options = parser.parse_args()
    runs = RUNS if options.clean >= 200 else RUNS | WITHOUT_HELD_OUT
    torch.set_num_threads(1)
    sets: dict[str, dict[str, Any]] = {"digits": {"source": "digits", "clean": options.clean}}
    if options.root is not None:
        sets["features"] = {"source": "cifar10-features", "root": str(options.root), "subset": 3000}
        sets["features"]["clean"] = options.clean
    rows = []
    for seed in options.seeds:
        for name, data in sets.items():
            for noise, rate in NOISES:
                for title, tables in runs.items():
                    settings = {**tables, "data": {**data, "noise": noise, "rate": rate}}
                    settings["train"] = {"seed": seed, **tables.get("train", {})}
                    fit, back, told = measured(settings)
                    row = {"set": name, "noise": f"{noise} {rate:g}", "run": title, "seed": seed, "given_back": back}
                    rows.append(
                        {**row, **fit._asdict(), "excess": fit.excess, "of_chance": fit.of_chance, "told": told}
                    )
                    numbers = back, fit.agreement, fit.right, fit.excess, fit.of_chance
                    shown = [*(f"{each:.2f}" for each in numbers), told]
                    print(f"{name} {noise} {rate:g} {title} {seed}:", *shown, flush=True)
    file = RESULTS / ("memorisation.json" if options.clean == 200 else f"memorisation-{options.clean}.json")
    file.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    for kind, chosen in (("memorised", True), ("did not", False)):
        some = [row for row in rows if (row["given_back"] >= 0.5) == chosen]
        excess = sorted(row["excess"] for row in some)
        losses = sorted(row["of_chance"] for row in some)
        said = {word: sum(row["told"] == word for row in some) for word in ("warning", "unknown", "nothing")}
        print(
            kind,
            len(some),
            said,
            "excess",
            [round(each, 2) for each in excess],
            "loss",
            [round(each, 2) for each in losses],
        )


if __name__ == "__main__":
    main()

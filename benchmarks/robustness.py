"""Is the default ever worse than its controls? Small and large, even and uneven, tables, texts and features, made noise
and real noise, 20 to 500 clean samples.

    python benchmarks/robustness.py --root DATA        # writes benchmarks/results/robustness/cells.jsonl
    python benchmarks/robustness.py --table            # the table of what is there

Every method of a setting sees the same samples, noise, clean samples and network (an MLP) for a seed, trains for 30
epochs, and is judged on the test samples after the last. Where the default holds out no clean samples, no other method
does: all learn from all of them. `mixup` rows are controls with the deployed network's mixup and weight decay, so that
these are not taken for a gain by better labels. The default was tuned on seeds from 100 on, in part on the same
settings, but not on those of UNTOUCHED. Pixels and a CNN: benchmarks/memorising.py.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mslg.data.batch import Batch, concat_inputs
from mslg.data.make_splits import CROSS_FITTED
from mslg.networks.evaluating import evaluating
from mslg.training.losses import soft_cross_entropy
from mslg.training.method import SingleNetwork, StepResult, Task
from mslg.training.mixup import can_mix, mixed
from pages.robustness import METHODS_WITHOUT_ORACLE, RIVALS, UNTOUCHED, grouped, read_cells, rows, table, verdict
from robustness_sets import DROPOUT, LOADERS, WIDTH, noisy_set

RESULTS = Path(__file__).parent / "results" / "robustness" / "cells.jsonl"
SETTINGS = [
    "digits uniform 0 50",
    "digits uniform 20 100",
    "digits uniform 40 20",
    "digits uniform 40 50",
    "digits uniform 60 50",
    "digits uniform 60 500",
    "digits uniform 80 200",
    "digits pair 20 200",
    "digits pair 40 20",
    "digits pair 40 100",
    "digits feature-dependent 20 50",
    "digits feature-dependent 40 100",
    "digits feature-dependent 60 50",
    "digits feature-dependent 60 200",
    "digits-uneven uniform 0 100",
    "digits-uneven uniform 20 50",
    "digits-uneven uniform 40 100",
    "digits-uneven uniform 60 20",
    "digits-uneven uniform 80 200",
    "digits-uneven pair 40 50",
    "digits-uneven feature-dependent 40 100",
    "wine uniform 40 20",
    "wine pair 40 20",
    "cancer uniform 40 20",
    "cancer pair 40 50",
    "cancer feature-dependent 20 50",
    "iris uniform 40 20",
    "cifar human 9 500",
    "cifar uniform 40 200",
    "cifar pair 40 200",
    "cifar feature-dependent 40 500",
    "trec rules 46 200",
    "trec uniform 40 200",
    *UNTOUCHED,
]
SEEDS = {"wine": 20, "cancer": 20, "iris": 20, "digits": 20, "digits-uneven": 20, "trec": 8}  # 5 of others
RIVAL_SEEDS = {"cifar": 2, "trec": 2}  # of methods that are neither the default nor controls; 5 of others
EPOCHS = 30
MIXED = {"weight_decay": 1e-3}
ROWS: dict[str, dict[str, Any]] = {
    "default": {},
    "meta": {"preset": "meta"},
    "cross entropy": {"method": "cross-entropy"},
    "clean only": {"method": "clean-only"},
    "noisy plus clean": {"method": "noisy-plus-clean"},
    "noisy then clean": {"method": "noisy-then-clean"},
    "gold correction": {"method": "gold-correction"},
    "clean only, mixup": MIXED,
    "noisy plus clean, mixup": MIXED,
    "fast": {"preset": "fast"},
    "mslg, one network": {"method": "mslg"},
    "label rate 0.6": {"method": "cross-fitted", "label_rate": 0.6},
    "label rate 1": {"method": "cross-fitted", "label_rate": 1.0},
    **{name: {"method": name} for name in METHODS_WITHOUT_ORACLE},
}


def shuffled(parts: Sequence[int]) -> Tensor:
    """(batch,) for each sample another one at random, each part of the batch within itself."""
    return torch.cat([sum(parts[:number]) + torch.randperm(size) for number, size in enumerate(parts)])


class Mixup(SingleNetwork):
    """Control: mixup on clean samples, and on noisy ones with their given labels beside them."""

    needs = frozenset({"clean set"})
    with_noisy = True

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.unit = torch.eye(task.classes)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        parts = [*([batch] if self.with_noisy else []), next(clean)]
        inputs, sizes = concat_inputs([part.inputs for part in parts]), [len(part.index) for part in parts]
        target = torch.cat([self.unit[part.label] for part in parts])
        if can_mix(inputs):
            assert isinstance(inputs, Tensor)
            inputs, target = mixed(inputs, target, shuffled(sizes))
        each = soft_cross_entropy(self.log_probs(inputs), target)
        loss = torch.stack([part.mean() for part in each.split(sizes)]).sum()
        self.descend(self.optimizer, loss)
        with evaluating(self.network):
            return StepResult({"loss": loss}, self.log_probs(batch.inputs))


class MixupCleanOnly(Mixup):
    """Control: mixup on the clean samples alone."""

    with_noisy = False


CLASSES = {"noisy plus clean, mixup": Mixup, "clean only, mixup": MixupCleanOnly}


def cell(job: tuple[str, str, int], *, root: Path, epochs: int | None) -> dict[str, Any]:
    """One run."""
    import logging

    from mslg.data.source import make_source
    from mslg.fitting.fit import fit
    from mslg.networks.mlp import MLP

    torch.set_num_threads(1)
    logging.getLogger("mslg").setLevel(logging.ERROR)
    row, name, seed = job
    kind = name.split()[0]
    epochs = epochs or EPOCHS
    data = noisy_set(name, seed, root)
    classes = [str(number) for number in range(int(data.true.max()) + 1)]
    text = [classes[number] for number in data.given]
    source = make_source(data.inputs, text, classes=classes, true_labels=data.true, verified_labels=data.true)

    def network() -> torch.nn.Module:
        hidden = (WIDTH.get(kind, 256),)
        return MLP(data.inputs.shape[1], len(classes), hidden=hidden, dropout=DROPOUT.get(kind, 0.2))

    options = {**ROWS[row], **({"method": CLASSES[row]} if row in CLASSES else {})}
    if data.clean < CROSS_FITTED:
        options["hold_out"] = False
    begun = time.perf_counter()
    result = fit(
        network,
        source,
        data.clean,
        test=make_source(data.test_inputs, [classes[number] for number in data.test], classes=classes),
        seed=seed,
        epochs=epochs,
        progress=False,
        **options,
    )
    last, index = result.summary["last"], result.outcome.data.train.index
    wrong = (data.given != data.true)[index.numpy()]
    return {
        "row": row,
        "setting": name,
        "seed": seed,
        "epochs": epochs,
        "test": round(last["test/accuracy"], 5),
        "given": round(1 - float(wrong.mean()), 5),
        **{key: round(last[f"{key}/accuracy"], 5) for key in ("suggested", "labels") if f"{key}/accuracy" in last},
        "average_precision": _average_precision(wrong, -result.labels["rank"].to_numpy()) if wrong.any() else None,
        **(_statements(result, wrong) if row == "default" else {}),  # the page reads no others
        "seconds": round(time.perf_counter() - begun, 1),
    }


def _statements(result: Any, wrong: Any) -> dict[str, Any]:
    """What the run states about its labels, with the truth: [low, high, truth] of the share of wrong labels, of those
    that are flagged, and of the first 50."""
    stated = result.summary["label_errors"]
    if "share" not in stated:
        return {}
    flagged, first = result.labels["is_label_issue"].to_numpy(), result.labels["rank"].to_numpy() < 50
    about = {"all": (stated["share"], wrong)}
    if "low" in stated["flagged"]:
        about["flagged"] = (stated["flagged"], wrong[flagged])
    for each in stated["precision"]:
        if each["depth"] == 50:
            about["first 50"] = (each, wrong[first])
    return {
        "statements": {
            name: [round(each["low"], 4), round(each["high"], 4), round(float(truth.mean()), 4)]
            for name, (each, truth) in about.items()
        }
    }


def _average_precision(wrong: Any, score: Any) -> float:
    from sklearn.metrics import average_precision_score

    return round(float(average_precision_score(wrong, score)), 5)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--root", type=Path, help="folder with trec_rules.csv, CIFAR-10 and its features")
    options.add_argument("--settings", nargs="+", default=SETTINGS)
    options.add_argument("--rows", nargs="+", default=[row for row in ROWS if not row.startswith("label rate")])
    options.add_argument("--seeds", type=int, nargs="+", help="by default 0 to 4; to 19 where a run takes seconds")
    options.add_argument("--epochs", type=int, help=f"by default {EPOCHS}")
    options.add_argument("-j", "--processes", type=int, default=2)
    options.add_argument("--output", type=Path, default=RESULTS)
    options.add_argument("--table", action="store_true", help="print the table and run nothing")
    arguments = options.parse_args()
    if not arguments.table:
        run(arguments)
    made = rows(grouped(read_cells(arguments.output)))
    print(table(made), verdict(made), sep="\n\n")


def run(arguments: argparse.Namespace) -> None:
    """Run the missing cells, each written when it is finished."""
    there = {(each["row"], each["setting"], each["seed"]) for each in read_cells(arguments.output)}
    jobs = []
    for setting in arguments.settings:
        name = setting.split()[0]
        if arguments.root is None and name in LOADERS:
            continue
        for row in arguments.rows:
            seeds = (RIVAL_SEEDS if row in RIVALS else SEEDS).get(name, 5)
            jobs += [(row, setting, seed) for seed in arguments.seeds or range(seeds)]
    # The default and its controls first, seed by seed, so that a run that is cut short leaves whole comparisons.
    jobs = sorted((job for job in jobs if job not in there), key=lambda job: (job[0] in RIVALS, job[2]))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(arguments.processes) as pool, arguments.output.open("a") as file:
        one = partial(cell, root=arguments.root or Path(), epochs=arguments.epochs)
        for number, found in enumerate(pool.map(one, jobs), 1):
            file.write(json.dumps(found) + "\n")
            file.flush()
            os.fsync(file.fileno())
            print(f"{number}/{len(jobs)} {found['setting']} {found['row']} {found['test']:.3f}", flush=True)


if __name__ == "__main__":
    main()

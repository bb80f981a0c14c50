"""Annotators simulated from known matrices: how good is the consensus, and are the matrices recovered?

    python benchmarks/annotators.py     # writes benchmarks/results/annotators.json; needs crowd-kit

    ten           10 annotators, right between 45 and 90 % of the time, 3 votes per sample, 4 classes
    same mistake  the same, but all annotators take one class for another more often than not
    crowd         60 annotators, 3 votes per sample, 10 classes: about 50 votes each, spread over 100 cells

With 0, 50 and 200 verified samples, and with and without the probabilities of a model that is right about seven times
out of ten and too sure. Beside majority vote and Dawid and Skene's estimator as crowd-kit has it, which gets the
verified labels too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

RESULTS = Path(__file__).parent / "results" / "annotators.json"
WORLDS = {"ten": (10, 4), "same mistake": (10, 4), "crowd": (60, 10)}  # annotators, classes
SAMPLES, VOTES, VERIFIED = 1_000, 3, [0, 50, 200]
SHIFT = {4: 1.5, 10: 2.2}  # of the true class's logit: the model is right about seven times out of ten
OVERCONFIDENCE = 2.0  # times the logits of a calibrated model

Array = npt.NDArray[Any]


def world(name: str, random: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    """Votes (samples, annotators) with −1 where there is none, true classes, matrices and a model's probabilities."""
    annotators, classes = WORLDS[name]
    true = random.integers(0, classes, SAMPLES)
    right = np.linspace(0.45, 0.9, annotators)[:, None, None]
    mistakes = random.dirichlet([0.5] * classes, (annotators, classes))
    mistakes[:, np.arange(classes), np.arange(classes)] = 0
    matrices = right * np.eye(classes) + (1 - right) * mistakes / mistakes.sum(2, keepdims=True)
    if name == "same mistake":
        matrices[:, 0] = 0.4 * np.eye(classes)[0] + 0.6 * np.eye(classes)[1]
    votes = np.full((SAMPLES, annotators), -1)
    for place, truth in enumerate(true):
        for who in random.choice(annotators, VOTES, replace=False):
            votes[place, who] = random.choice(classes, p=matrices[who, truth])
    logits = random.normal(size=(SAMPLES, classes))
    logits[np.arange(SAMPLES), true] += SHIFT[classes]
    probs = np.exp(OVERCONFIDENCE * SHIFT[classes] * (logits - logits.max(1, keepdims=True)))
    return votes, true, matrices, probs / probs.sum(1, keepdims=True)


def shares(votes: Array, labels: Array, classes: int) -> Array:
    """(annotators, classes, classes) how often each says what, by these labels."""
    place, who = np.nonzero(votes >= 0)
    counts = np.zeros((votes.shape[1], classes, classes))
    np.add.at(counts, (who, labels[place], votes[place, who]), 1)
    return counts


def distance(found: Array, matrices: Array) -> float:
    """Mean total variation of the rows of the matrices; a row about which nothing was said is even."""
    total = found.sum(2, keepdims=True)
    rows = np.where(total > 0, found / np.where(total > 0, total, 1), 1 / found.shape[2])
    return float(np.abs(rows - matrices).sum(2).mean() / 2)


def dawid_skene(votes: Array, known: Array, classes: int) -> tuple[Array, Array]:
    """Labels and matrices."""
    try:
        from crowdkit.aggregation import DawidSkene
    except ImportError:
        raise SystemExit("crowd-kit is not installed, which this compares with: pip install crowd-kit==1.4.2") from None
    place, who = np.nonzero(votes >= 0)
    table = pd.DataFrame({"task": place, "worker": who, "label": votes[place, who]})
    checked = np.flatnonzero(known >= 0)
    truth = pd.Series(known[checked], index=checked) if len(checked) else None
    model = DawidSkene(n_iter=100).fit(table, true_labels=truth)
    errors = np.zeros((votes.shape[1], classes, classes))
    for (worker, said), row in model.errors_.iterrows():
        for true_class, share in row.items():
            errors[worker, int(true_class), said] = share
    return model.labels_.reindex(range(len(votes))).to_numpy().astype(int), errors


def rows(name: str, seed: int) -> list[dict[str, Any]]:
    """One world."""
    import mslg
    from mslg.data.votes import open_votes

    votes, true, matrices, probs = world(name, np.random.default_rng([seed, len(name)]))
    classes = matrices.shape[1]
    order = np.random.default_rng([seed, 1]).permutation(SAMPLES)
    majority = open_votes(votes, classes=[str(number) for number in range(classes)])[1].majority().numpy()
    found = []
    for count in VERIFIED:
        known = np.full(SAMPLES, -1)
        known[order[:count]] = true[order[:count]]
        rest = order[count:]  # all are judged on the samples that are not verified

        def row(
            method: str, labels: Array, matrix: Array | None, count: int = count, rest: Array = rest
        ) -> dict[str, Any]:
            right = float((labels[rest] == true[rest]).mean())
            error = None if matrix is None else distance(matrix, matrices)
            return {
                "world": name, "seed": seed, "verified": count, "method": method, "right": right, "matrix_error": error
            }  # fmt: skip

        best = np.where(known >= 0, known, majority)
        found.append(row("majority vote", majority, shares(votes, best, classes)))
        found.append(row("Dawid-Skene", *dawid_skene(votes, known, classes)))
        found.append(row("the model alone", probs.argmax(1), None))
        for method, model in (("mslg", None), ("mslg with the model", probs)):
            issues = mslg.find_label_issues(
                votes, model, verified=known, annotators=True, classes=[str(number) for number in range(classes)]
            )
            assert issues.annotators is not None
            table = issues.labels.set_index("id")["consensus_label"]
            labels = known.copy()
            labels[table.index.astype(int)] = table.to_numpy().astype(int)
            found.append(row(method, labels, issues.annotators.matrices.numpy()))
            if (stated := issues.summary["label_errors"].get("count")) is not None:
                wrong = int((majority != true)[rest].sum())
                found[-1] |= {"wrong": wrong, "stated": stated}
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options.add_argument("--output", type=Path, default=RESULTS)
    arguments = options.parse_args()
    from mslg.runtime.machine import versions

    found = [row for seed in arguments.seeds for name in WORLDS for row in rows(name, seed)]
    arguments.output.write_text(json.dumps({"versions": versions(), "rows": found}, indent=1) + "\n")
    means = pd.DataFrame(found).groupby(["world", "verified", "method"], sort=False)[["right", "matrix_error"]].mean()
    print(means.round(3).to_string())


if __name__ == "__main__":
    main()

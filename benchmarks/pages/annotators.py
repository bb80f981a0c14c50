"""The section on several annotators of docs/results/any-model.md."""

from __future__ import annotations

import statistics
from typing import Any

from .words import bold, listed, prose, table, thousands

COMMAND = "```sh\npip install crowd-kit==1.4.2\npython benchmarks/annotators.py\n```"
WITH_MODEL = "mslg with the model"  # has more to go by than the others: not compared with them
COMPARED = ("majority vote", "Dawid-Skene", "mslg")


def section(rows: list[dict[str, Any]]) -> list[str]:
    """The paragraphs."""
    about = prose(
        "Votes drawn from known matrices: 1,000 samples, three votes each. *Ten*: 10 annotators who are right between",
        "45 and 90 % of the time, 4 classes. *Same mistake*: the same, but all of them take one class for another in",
        "three cases of five. *Crowd*: 60 annotators with about 50 votes each, 10 classes. *Dawid-Skene* is",
        "crowd-kit's and gets the verified labels too; *mslg* has the votes and the verified labels, *with the",
        "model* also the probabilities of a simulated model that is too sure. Consensus labels that are right, in",
        "percent of the samples that are not verified; then the mean total variation between the estimated rows",
        "of the matrices and the true ones, in percent. Bold: the best of those without a model.",
    )
    if not rows:
        return [COMMAND, about, "Not run yet."]
    cells: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        cells.setdefault((row["world"], row["verified"]), {}).setdefault(row["method"], []).append(row)
    lines, worse = [], []
    for (world, verified), methods in cells.items():
        right = {name: 100 * statistics.mean(row["right"] for row in found) for name, found in methods.items()}
        error = {name: 100 * statistics.mean(row["matrix_error"] for row in methods[name]) for name in _estimated()}
        if right["mslg"] < max(right[name] for name in COMPARED):
            worse.append(f"{world}, {thousands(verified)} verified (labels)")
        if error["mslg"] > min(error[name] for name in COMPARED):
            worse.append(f"{world}, {thousands(verified)} verified (matrices)")
        shown = [_bold(right, name, max) for name in COMPARED]
        shown += [f"{right['the model alone']:.1f}", f"{right[WITH_MODEL]:.1f}"]
        shown += [_bold(error, name, min) for name in COMPARED] + [f"{error[WITH_MODEL]:.1f}"]
        lines.append([world, thousands(verified), *shown])
    head = ["votes", "verified", *(f"right: {name}" for name in (*COMPARED, "the model alone", WITH_MODEL))]
    head += [f"matrices off by: {name}" for name in _estimated()]
    first = (
        f"It is not the best of the three in: {'; '.join(worse)}." if worse else "It is the best of the three in all."
    )
    seeds = f"Means over the seeds {listed(sorted({str(row['seed']) for row in rows}))}. {first}"
    return [COMMAND, about, table(head, lines), seeds, _coverage(rows)]


def _estimated() -> tuple[str, ...]:
    return (*COMPARED, WITH_MODEL)


def _bold(values: dict[str, float], name: str, best: Any) -> str:
    words = f"{values[name]:.1f}"
    return bold(words) if values[name] == best(values[each] for each in COMPARED) else words


def _coverage(rows: list[dict[str, Any]]) -> str:
    stated = [row for row in rows if row["method"] == "mslg" and "stated" in row]
    held = sum(row["stated"]["low"] <= row["wrong"] <= row["stated"]["high"] for row in stated)
    return prose(
        f"The 90 % interval of the number of wrong majority labels holds the truth in {held} of {len(stated)} cases",
        "with verified samples. The simulated annotators make mistakes that depend on the class alone, as the",
        "estimators assume; real ones also err together on hard samples, which this does not measure.",
    )

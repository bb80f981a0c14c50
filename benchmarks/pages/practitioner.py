"""docs/results/practitioner.md: a folder of photos by defaults, against cleanlab on the same features."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from .words import bold, prose, table

NOISES = {
    "human": "human (9 %)",
    "human-40": "human confusions, 40 %",
    "pairs-40": "pairs of classes, 40 %",
    "features-40": "feature-dependent, 40 %",
}
LAYOUTS = {"none": "none", "both": "given and verified labels", "separate": "verified labels only"}
Rows = dict[tuple[str, str, int], list[dict[str, Any]]]


def page(results: Path) -> str:
    """The page."""
    ledger = results / "practitioner.jsonl"
    cells = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
    return "\n\n".join(
        ["# A folder of photos, by defaults", *_about(), *(_results(cells) if cells else ["Not run yet."])]
    )


def _about() -> list[str]:
    return [
        "```sh\npython benchmarks/practitioner.py --data DATA --work WORK --minutes 120\n```",
        prose(
            "6,000 photos (CIFAR-10 as JPEG files) in class folders, some in the wrong one, on a machine without a",
            "GPU: `mslg fit photos --clean verified` and no other option, so a head on the features of the packaged",
            "backbone. The clean photos are either copies of photos in the folder (given and verified labels) or other",
            "ones (verified labels only). *cleanlab* has the same features: logistic regression with cross-validated",
            "C, out-of-sample probabilities, and its defaults. Both are judged on the photos that are not verified.",
            "Wrong labels: those of people who labelled CIFAR-10; their confusions at 40 %; pairs of classes; and the",
            "40 % of photos that are nearest to another class. Settings were chosen on other draws of photos.",
        ),
    ]


def _results(cells: list[dict[str, Any]]) -> list[str]:
    rows: Rows = {}
    for cell in cells:
        noise, layout, count, _ = cell["cell"].split("/")
        rows.setdefault((noise, layout, int(count)), []).append(cell)
    order = [(noise, layout) for noise in NOISES for layout in LAYOUTS]
    keys = sorted(rows, key=lambda key: (order.index(key[:2]), key[2]))
    seeds = sorted({cell["cell"].rpartition("/")[2] for cell in cells})
    head = ["wrong labels", "clean samples", "average precision", "cleanlab", "first 200", "cleanlab"]
    head += ["flags: precision", "recall", "cleanlab: precision", "recall", "labels right before", "after", "cleanlab"]
    lines, lost = [], []
    for key in keys:
        noise, layout, count = key
        own, other = ({name: _mean(rows[key], name, of) for name in MEASURES} for of in (None, "cleanlab"))
        name = f"{count}, {LAYOUTS[layout]}" if count else "none"
        lines.append(
            [NOISES[noise], name, *_pair(own, other, "average_precision"), *_pair(own, other, "precision_at_200")]
        )
        lines[-1] += [f"{each[kind]:.2f}" for each in (own, other) for kind in ("precision", "recall")]
        lines[-1] += [f"{own['right_before']:.3f}", *_pair(own, other, "right_after")]
        if own["average_precision"] < other["average_precision"]:
            lost.append(f"{NOISES[noise]}, {name}")
    first = f"By average precision mslg is first in {len(lines) - len(lost)} of {len(lines)} rows"
    return [
        table(head, lines),
        f"Means over the seeds {', '.join(seeds)}." if len(seeds) > 1 else f"One draw of photos, seed {seeds[0]}.",
        f"{first}{'; not in: ' + '; '.join(lost) if lost else ''}.",
        *_stated(cells),
    ]


MEASURES = ("average_precision", "precision_at_200", "precision", "recall", "right_before", "right_after")


def _stated(cells: list[dict[str, Any]]) -> list[str]:
    stated = [cell for cell in cells if "covered" in cell]
    missed = [cell["cell"] for cell in stated if not cell["covered"]]
    seconds = [cell["seconds"] for cell in cells]
    found = []
    if stated:
        which = f": {', '.join(missed)}" if missed else ""
        words = (
            f"The number of wrong labels was stated in {len(stated)} runs, all with given and verified labels, with a",
            f"90 % interval that missed the truth in {len(missed)}{which}. Elsewhere none is stated.",
        )
        found.append(prose(*words))
    depths: dict[int, list[bool]] = {}
    for depth, low, high, truth in (each for cell in stated for each in cell.get("precision_stated", [])):
        depths.setdefault(depth, []).append(low <= truth <= high)
    if depths:
        each = ", ".join(f"{depth:,}: {sum(held)} of {len(held)}" for depth, held in sorted(depths.items()))
        found.append(
            prose("How many of the first N labels are wrong is stated too; 90 % intervals that held,", f"{each}.")
        )
    words = (
        f"From the command to the list, with features cached: {statistics.median(seconds):.0f} s (median of",
        f"{len(seconds)} runs on a shared machine, at most {max(seconds):.0f} s).",
    )
    found.append(prose(*words))
    return found


def _mean(cells: list[dict[str, Any]], name: str, of: str | None) -> float:
    return statistics.mean((cell if of is None else cell[of])[name] for cell in cells)


def _pair(own: dict[str, float], other: dict[str, float], name: str) -> list[str]:
    texts = [f"{each[name]:.3f}" for each in (own, other)]
    return [
        bold(texts[0]) if own[name] >= other[name] else texts[0],
        bold(texts[1]) if other[name] > own[name] else texts[1],
    ]

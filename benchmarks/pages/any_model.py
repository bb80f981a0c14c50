"""docs/results/any-model.md: label issues from the probabilities of any model, against cleanlab and self-confidence."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from . import annotators
from .words import bold, listed, prose, table, thousands

MEASURES = {"ap": "average precision", "f1": "F1 of the flags", "right": "labels right"}
LISTS = ("mslg", "cleanlab", "self-confidence")
STATED = {"count": "wrong labels", "50": "first 50", "100": "first 100", "200": "first 200", "500": "first 500"}
STATED |= {"1000": "first 1,000", "flagged": "flagged"}
ALPHA = 1e-9


def page(results: Path) -> str:
    """The page."""
    return "\n\n".join(
        [
            "# Any model's probabilities, measured",
            prose(
                "`mslg.find_label_issues` and `mslg issues` take [the probabilities of any",
                "model](../any-model.md). What do",
                "they make of them, beside other tools, and does what they state hold?",
            ),
            "## Which list finds wrong labels best?",
            *_comparison(_read(results / "any_model.json", "cells")),
            "## Other kinds of problem",
            *_kinds(_read(results / "problem_kinds.json", "cells")),
            "## Several annotators",
            *annotators.section(_read(results / "annotators.json", "rows")),
            "## Very many samples or classes",
            *_scale(_read(results / "issues_scale.json", "rows")),
        ]
    )


def _read(path: Path, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())[key] if path.exists() else []
    return found


def _comparison(cells: list[dict[str, Any]]) -> list[str]:
    command = "```sh\npython benchmarks/any_model.py --root DATA\n```"
    about = prose(
        "Out-of-sample probabilities of three models of scikit-learn, trained on the given labels alone, and",
        "all three",
        "together; some random samples are verified. *cleanlab*: the best of its three scores (average",
        "precision) and of its",
        "five filters (F1, labels right), chosen with hindsight in every row. *Self-confidence*: the",
        "probability of the given",
        "label; the predicted class where it differs. All are judged on the samples that are not verified.",
        "Settings were",
        "chosen on other seeds. In percent; bold: the best of the three.",
    )
    if not cells:
        return [command, about, "Not run yet."]
    rows: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for cell in cells:
        for row in cell["rows"]:
            rows.setdefault((cell["set"], row["model"], row["verified"]), []).append(row)
    lines, lost = [], []
    for (name, model, verified), seeds in rows.items():
        means = {measure: means_of(seeds, measure) for measure in MEASURES}
        numbers = []
        for measure, values in means.items():
            best = max(values.values())
            numbers += [_bold(100 * values[each], 100 * best) for each in LISTS]
            if verified and values["mslg"] < best - ALPHA:
                lost.append((measure, name, model, verified, 100 * (best - values["mslg"])))
        lines.append([name, model, thousands(verified), *numbers])
    head = ["set", "model", "verified", *(f"{words}: {each}" for words in MEASURES.values() for each in LISTS)]
    count = sum(1 for key in rows if key[2])
    return [
        command,
        about,
        table(head, lines),
        f"Means over the seeds {listed(sorted({str(cell['seed']) for cell in cells}))}.",
        _verdict(lost, count),
        "### Do the intervals hold?",
        *_coverage(rows),
    ]


def means_of(seeds: list[dict[str, Any]], measure: str) -> dict[str, float]:
    """The mean of every list; of cleanlab's, the best."""
    first = seeds[0]["cleanlab"]
    if measure == "ap":
        tried = [[row["cleanlab"]["ap"][kind] for row in seeds] for kind in first["ap"]]
    else:
        tried = [[row["cleanlab"]["filters"][kind][measure] for row in seeds] for kind in first["filters"]]
    own = {each: statistics.mean(row[each][measure] for row in seeds) for each in ("mslg", "self-confidence")}
    return {**own, "cleanlab": max(map(statistics.mean, tried))}


def _verdict(lost: list[tuple[str, str, str, int, float]], count: int) -> str:
    words = []
    for measure, name in MEASURES.items():
        here = [each for each in lost if each[0] == measure]
        told = f"{name}: first in {count - len(here)} of {count} rows with verified samples"
        if here:
            places = [f"{each[1]}, {each[2]}, {each[3]} (by {each[4]:.1f})" for each in here]
            told += f"; not in {'; '.join(places)}"
        words.append(f"- {told}.")
    closing = prose(
        "Where it is not first, the noise is uniform or rare and the model weak: a class matrix then adds",
        "nothing to the",
        "probability of the given label, and what is fitted on few verified samples is mostly chance. With no",
        "verified",
        "samples at all, the order of the list is no better than self-confidence on average: verify some.",
    )
    return "\n".join(words) + "\n\n" + closing


def _coverage(rows: dict[tuple[str, str, int], list[dict[str, Any]]]) -> list[str]:
    found: dict[int, dict[str, list[bool]]] = {}
    for (_, _, verified), seeds in rows.items():
        for row in seeds:
            for key, each in row["intervals"].items():
                inside = each["low"] - ALPHA <= each["truth"] <= each["high"] + ALPHA
                found.setdefault(verified, {}).setdefault(key, []).append(inside)
    lines = [
        [thousands(verified), *(f"{sum(kinds[key])} of {len(kinds[key])}" if key in kinds else "" for key in STATED)]
        for verified, kinds in sorted(found.items())
    ]
    about = prose(
        "How many 90 % intervals hold the truth: of the number of wrong labels, and of the share of wrong ones",
        "on the list.",
        "The rows of one seed share their verified samples, so misses come together. With 100 verified samples",
        "the intervals hold somewhat less often than they should.",
    )
    return [about, table(["verified", *STATED.values()], lines)]


def _kinds(cells: list[dict[str, Any]]) -> list[str]:
    command = "```sh\npython benchmarks/problem_kinds.py --root DATA --seeds 0 1\n```"
    about = prose(
        "Planted in sets with 20 % wrong labels, 3 % of each kind; 300 verified samples, probabilities of",
        "logistic regression.",
        "Strangers: patches of photographs among digits, features whose coordinates come from different images,",
        "random words",
        "among questions. Duplicates: a little noise, or a word left out. Mixtures: the mean of two samples of",
        "different",
        "classes, or two questions in one. Precision and recall in percent, means over seeds.",
    )
    if not cells:
        return [command, about, "Not run yet."]
    kinds = list(cells[0]["kinds"])
    lines = []
    for name in dict.fromkeys(cell["set"] for cell in cells):
        here = [cell for cell in cells if cell["set"] == name]
        lines.append([name, str(len(here)), *(_precision_and_recall(here, kind) for kind in kinds)])
    recognised = [
        f"{100 * statistics.mean(cell['recognised'] for cell in cells if cell['set'] == name):.0f} % in {name}"
        for name in dict.fromkeys(cell["set"] for cell in cells)
    ]
    closing = prose(
        "*Off*: `find_label_issues` found that it cannot judge. Duplicates and strangers are found where features",
        "separate them; among questions reduced to 100 dimensions, probably because many are nearly alike there,",
        "most of what is called a duplicate is none. *Ambiguous* is right less than half the time even among",
        "digits; so it is first tried on mixtures of verified samples, and is off where it does not recognise",
        "half of them. It recognised",
        f"{listed(recognised)}.",
    )
    return [command, about, table(["set", "seeds", *kinds], lines), closing]


def _precision_and_recall(cells: list[dict[str, Any]], kind: str) -> str:
    judged = [cell for cell in cells if cell["kinds"][kind] is not None]
    if not judged:
        return "off"
    words = " · ".join(_percent(judged, kind, key) for key in ("precision", "recall"))
    return words if len(judged) == len(cells) else f"{words} (off in {len(cells) - len(judged)})"


def _scale(rows: list[dict[str, Any]]) -> list[str]:
    command = "```sh\npython benchmarks/issues_scale.py --write\n```"
    about = prose(
        "Time of `find_label_issues` with 1,000 verified samples and of writing the run's folder, with two",
        "threads, and the",
        "memory they take beyond the probabilities, which are read from a file.",
    )
    if not rows:
        return [command, about, "Not run yet."]
    lines = [
        [
            f"{row['samples']:,} × {row['classes']:,}",
            f"{row['seconds']['find']:.0f} s",
            f"{row['seconds']['save']:.0f} s",
            f"{row['megabytes']['find']:.0f} MB",
            f"{row['megabytes']['save']:.0f} MB",
        ]
        for row in rows
    ]
    return [command, about, table(["samples × classes", "find", "write", "memory: find", "memory: write"], lines)]


def _percent(cells: list[dict[str, Any]], kind: str, key: str) -> str:
    return f"{100 * statistics.mean(cell['kinds'][kind][key] for cell in cells):.0f}"


def _bold(value: float, best: float) -> str:
    return bold(f"{value:.1f}") if value >= best - ALPHA else f"{value:.1f}"

"""Lists and statements on labels that people or rules gave, not a generator: part of docs/results/issues.md."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .any_model import LISTS, MEASURES, means_of
from .robustness import cells as suite
from .robustness import grouped
from .words import prose, table, thousands

REAL = {"cifar human": "CIFAR-10N, people", "trec rules": "TREC, regular expressions"}  # how the names of sets begin
SHOWN = "all three"  # models together


def section(results: Path) -> list[str]:
    """The section, as far as its cells are there."""
    path = results / "any_model.json"
    cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"] if path.exists() else []
    parts = [*_lists(cells), *_statements(cells, results)]
    return ["## On real noise", *parts] if parts else []


def _name(words: str) -> str | None:
    return next((name for begins, name in REAL.items() if words.startswith(begins)), None)


def _lists(cells: list[dict[str, Any]]) -> list[str]:
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for cell in cells:
        for row in cell["rows"]:
            if (name := _name(cell["set"])) is not None and row["model"] == SHOWN and row["verified"]:
                found.setdefault((name, row["verified"]), []).append(row)
    if not found:
        return []
    lines = []
    for (name, verified), rows in found.items():
        numbers = [means_of(rows, measure)[each] for measure in MEASURES for each in LISTS[:2]]
        lines.append([name, thousands(verified), *(f"{100 * value:.1f}" for value in numbers)])
    seeds = len({cell["seed"] for cell in cells})
    head = ["labels by", "verified", *(f"{words}: {each}" for words in MEASURES.values() for each in LISTS[:2])]
    return [
        prose(
            "The same features, and the same three models' probabilities, for both lists; cleanlab's best score and",
            f"filter are chosen with hindsight. {seeds} seeds, in percent; single models, and other noises: [any",
            "model](any-model.md).",
        ),
        table(head, lines),
    ]


def _statements(cells: list[dict[str, Any]], results: Path) -> list[str]:
    """How many 90 % intervals hold the truth on real noise: of the function and of runs of the default."""
    found: dict[tuple[str, str], list[bool]] = {}
    for cell in cells:
        for row in cell["rows"]:
            if (name := _name(cell["set"])) is not None and row["verified"]:
                stated = [(each["low"], each["high"], each["truth"]) for each in row["intervals"].values()]
                found.setdefault((name, f"`find_label_issues`, {row['verified']:,} verified"), []).extend(held(stated))
    for setting, by_row in grouped(suite(results)).items():
        for each in by_row.get("default", {}).values() if _name(setting) is not None else ():
            source = f"runs of the default, {int(setting.split()[-1]):,} verified"
            found.setdefault((str(_name(setting)), source), []).extend(held(each.get("statements", {}).values()))
    found = {key: values for key, values in found.items() if values}
    if not found:
        return []
    lines = [
        [name, source, thousands(len(values)), thousands(sum(values)), f"{100 * sum(values) / len(values):.0f} %"]
        for (name, source), values in found.items()
    ]
    every = [value for values in found.values() for value in values]
    share = f"{100 * sum(every) / len(every):.0f} %"
    lines.append(["**together**", "", thousands(len(every)), thousands(sum(every)), share])
    return [
        prose(
            "Statements with 90 % intervals (how many labels are wrong; how many of the first 50, 100, … and of the",
            "flagged ones), and how many hold the truth. Those of one seed rest on the same verified samples, so that",
            "misses come together.",
        ),
        table(["labels by", "stated by", "statements", "that hold", "share"], lines),
    ]


def held(stated: Iterable[Any]) -> list[bool]:
    """Whether each interval (low, high, truth) holds the truth."""
    return [low - 1e-9 <= truth <= high + 1e-9 for low, high, truth in stated]

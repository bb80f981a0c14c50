"""docs/results/tuning.md: the settings that were tried for each method, and which of them the features' table has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mslg.sweeps.grid import Axis
from mslg.sweeps.table import across

from .sweep import Sweep
from .words import NOTHING, bold, listed, number, prose, signed, table, thousands, with_interval

OURS = "mslg"
MARKER = "<!-- exploration -->"
WORDS = {3: "Three", 4: "Four", 5: "Five", 6: "Six"}


def page(sweep: Sweep, features: Sweep, study: Sweep, exploration: Path) -> str:
    """The page; the text of the exploration is a file of its own."""
    data, seeds = sweep.grid.base["data"], ", ".join(map(str, sweep.grid.seeds))
    text = exploration.read_text().strip() if exploration.exists() else MARKER
    sizes = sorted({len(rows) for rows in by_method(sweep).values()})
    return "\n\n".join(
        [
            "# How the settings were chosen",
            prose(
                f"{' or '.join(WORDS.get(size, str(size)) for size in sizes)} settings of every method, MSLG included,",
                f"on {len(sweep.columns)} noises; the highest mean over these columns is the best setting of a method.",
                f"Seed {seeds}, which is none of those reported in [the features' table](features.md); judged on",
                f"{thousands(data.get('test', 0))} held-out training samples, not on the test set.",
            ),
            sweep.header,
            "## What was tried",
            prose(
                "Accuracy in percent on the held-out training samples, last epoch. Bold: the highest mean of a",
                "method; the last column says which setting the features' table has.",
            ),
            _table(sweep, features),
            *_agreement(sweep, features),
            "## Exploration",
            prose(
                "What led to the form of MSLG's default; the other methods have the form of their papers.",
                _commits(sweep, features),
            ),
            text,
            "### Parts of MSLG's default",
            study.header,
            study.notes.replace("Test accuracy", "Accuracy on the held-out training samples"),
            study.numbers(link=False),
            *_parts(study),
        ]
    )


def by_method(sweep: Sweep) -> dict[str, list[Axis]]:
    """The rows of each method, in order."""
    found: dict[str, list[Axis]] = {}
    for row in sweep.grid.rows:
        found.setdefault(sweep.method(row), []).append(row)
    return found


def best_settings(sweep: Sweep) -> dict[str, Axis]:
    """The row of each method with the highest mean over columns; only where all of the method's rows are finished."""
    summary, best = sweep.summary(), {}
    for method, rows in by_method(sweep).items():
        means = {row.name: across(sweep.grid, summary, row.name) for row in rows}
        places = [summary.places[row.name, column] for row in rows for column in sweep.columns]
        known = {name: mean for name, mean in means.items() if mean is not None}
        if known and all(place.complete for place in places):
            name = max(known, key=lambda each: known[each])
            best[method] = next(row for row in rows if row.name == name)
    return best


def _table(sweep: Sweep, features: Sweep) -> str:
    summary, best, lines = sweep.summary(), best_settings(sweep), []
    exact, apart = _used(features), _used(features, rate=False)
    for method, rows in by_method(sweep).items():
        taken = any(_settings(sweep, row) in exact for row in rows)
        for place, row in enumerate(rows):
            mean = across(sweep.grid, summary, row.name)
            words = [row.name.partition(": ")[2] or "default"]
            words += [number(summary.places[row.name, column]) for column in sweep.columns]
            words.append(NOTHING if mean is None else f"{mean:.2f}")
            use = "this" if _settings(sweep, row) in exact else ""
            if not taken and _settings(sweep, row, rate=False) in apart:
                use = f"this, at learning rate {_rate(features)}"
            link = f"[{method}](../methods/{method}.md)" if place == 0 else ""
            lines.append([link, *(bold(word) if best.get(method) is row else word for word in words), use])
    return table(["method", "setting", *sweep.columns, "mean", "in the features' table"], lines)


def _agreement(sweep: Sweep, features: Sweep) -> list[str]:
    """Whether the features' table runs with what was best here: in all, or but for its common learning rate."""
    methods, best = by_method(sweep), best_settings(sweep)
    exact, apart = _used(features), _used(features, rate=False)
    plain = {method: [row for row in rows if _rate(sweep, row) == _rate(sweep)] for method, rows in methods.items()}
    kept = best_settings(sweep.only([row.name for rows in plain.values() for row in rows]))
    same = [method for method, row in best.items() if _settings(sweep, row) in exact]
    but = [
        method
        for method, row in kept.items()
        if method in best and method not in same and _settings(sweep, row, rate=False) in apart
    ]
    other = [method for method in best if method not in (*same, *but)]
    missing = [method for method in methods if method not in best]
    words = {
        "with the setting that is highest here": same,
        f"with the highest of those at learning rate {_rate(sweep)}, but at {_rate(features)}": but,
        "with another setting": other,
    }
    lines = [f"- {told}: {listed(names)}" for told, names in words.items() if names]
    lines += [f"- not finished here: {listed(missing)}"] if missing else []
    return [
        prose(
            f"All rows of the features' table have the learning rate {_rate(features)}.", _about_rate(sweep, features)
        ),
        "The methods run there",
        "\n".join(lines),
    ]


def _about_rate(sweep: Sweep, features: Sweep) -> str:
    """What the features' learning rate does to settings that were tried with both."""
    summary = sweep.summary()
    better: list[str] = []
    worse: list[str] = []
    if _rate(features) == _rate(sweep):
        return ""
    for method, rows in by_method(sweep).items():
        for row in rows:
            twin = [each for each in rows if each is not row and _twins(sweep, row, each)]
            if _rate(sweep, row) != _rate(features) or not twin:
                continue
            high, low = (across(sweep.grid, summary, each.name) for each in (row, twin[0]))
            if high is not None and low is not None:
                (better if high > low else worse).append(f"{method} {signed(high - low)}" if high <= low else method)
    if not better and not worse:
        return ""
    told = f"Where a setting was tried here with {_rate(sweep)} and with {_rate(features)}, the latter is higher for"
    return f"{told} {len(better)} methods and not for {len(worse)}{f' ({listed(worse)})' if worse else ''}."


def _commits(sweep: Sweep, features: Sweep) -> str:
    """Whether the default was the same code here and in the features' table."""
    here, there = (sorted({c.commit for c in each.results.values() if c.row == OURS}) for each in (sweep, features))
    if not here or not there or here == there:
        return ""
    names = [listed([f"`{commit}`" for commit in commits]) for commits in (here, there)]
    return f"Two commits: the row `{OURS}` above is of {names[0]}, that in the features' table of {names[1]}."


def _parts(study: Sweep) -> list[str]:
    reference = study.grid.reference
    if reference is None:
        return []
    found = {row: study.minus(row, reference) for row in study.rows if row != reference}
    lines = [[row, *(with_interval(each.get(column)) for column in study.columns)] for row, each in found.items()]
    return [f"Each row minus `{reference}`, seed by seed, with 95 % intervals:", table(["", *study.columns], lines)]


def _twins(sweep: Sweep, first: Axis, second: Axis) -> bool:
    """Whether two rows differ in the learning rate only, which the second leaves as it is."""
    same = _settings(sweep, first, rate=False) == _settings(sweep, second, rate=False)
    return same and _rate(sweep, second) == _rate(sweep)


def _used(features: Sweep, *, rate: bool = True) -> list[dict[str, Any]]:
    return [_settings(features, row, rate=rate) for row in features.grid.rows]


def _rate(sweep: Sweep, row: Axis | None = None) -> Any:
    """The learning rate of a row, or that which rows have unless they say otherwise."""
    common = sweep.grid.base["train"].get("learning_rate")
    return common if row is None else row.changes["train"].get("learning_rate", common)


def _settings(sweep: Sweep, row: Axis, *, rate: bool = True) -> dict[str, Any]:
    """What a row's method is run with, with or without the learning rate."""
    settings = sweep.grid.cell(row, sweep.grid.columns[0], sweep.grid.seeds[0]).settings
    left_out = ("seed",) if rate else ("seed", "learning_rate")
    train = {key: value for key, value in settings["train"].items() if key not in left_out}
    return {"method": settings["method"], "network": settings["network"], "train": train}

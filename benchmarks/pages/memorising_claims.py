"""What the paper says, and what networks that memorise show of it: part of docs/results/memorising.md."""

from __future__ import annotations

from collections.abc import Sequence

from mslg.sweeps.table import Difference

from .memorising_tables import ABLATED, FORMS, PLAIN, Tables
from .sweep import TABLE, Sweep
from .words import prose, signed, table, with_interval

BASE = "mslg released"
STEPS = {
    PLAIN: "cross entropy",
    "cross-entropy, the paper's schedule": "the paper's schedule",
    "released, label rate 0": "and its loss",
    BASE: "and label learning",
}
ENOUGH = 5  # of the ten other methods, at least, for a claim about all of them


def claims(found: Tables) -> list[str]:
    """The claims that the finished cells can judge, each with what they show."""
    parts = [
        *_against_the_ten(
            found,
            "feature-dependent",
            "### MSLG beats the others under structured noise",
            "In the paper it is the best of eleven in every feature-dependent column, from 40 % on by 4 to 31 points.",
        ),
        *_against_the_ten(
            found,
            "uniform",
            "### It falls shortly behind under uniform noise",
            "In the paper it is 2 points below the best at 20 and 40 %, and the best at 80 %.",
        ),
        *_gain_over_rate(found),
    ]
    return ["## What the paper says", *parts] if parts else []


def _against_the_ten(found: Tables, kind: str, title: str, says: str) -> list[str]:
    columns = found.noisy(kind)
    forms = [form for form in FORMS if form in found.table.rows]
    ten = len(the_ten(found.table))
    if not columns or not forms or ten < ENOUGH:
        return []
    lines = []
    for form in forms:
        by_column = best_of_ten(found, form, columns)
        above = sum(between.mean > 0 for _, between in by_column.values())
        words = [f"{name} {signed(between.mean)} to {best}" for name, (best, between) in by_column.items()]
        told = f"above the best of them in {above} of {len(by_column)} columns ({', '.join(words)})"
        lines.append(f"- `{form}`: {told}{certainty(found, {c: d for c, (_, d) in by_column.items()})}.")
    here = f"Here, against the best of the {ten} others that stand in the table and know no more than MSLG:"
    return [title, prose(says, here), "\n".join(lines)]


def the_ten(sweep: Sweep) -> list[str]:
    """The rows of the methods that the paper compares with, without those that know more than the others."""
    return [row.name for row in sweep.grid.rows if row.paper and not row.knows and row.paper != "mslg"]


def best_of_ten(found: Tables, form: str, columns: Sequence[str]) -> dict[str, tuple[str, Difference]]:
    """By column, the best of the paper's other methods, and a form of MSLG minus it."""
    by_column = found.minus_best(form, the_ten(found.table))
    return {name: by_column[name] for name in columns if name in by_column}


def certainty(found: Tables, by_column: dict[str, Difference]) -> str:
    """How many of these differences are significant."""
    if found.once:
        return "; one seed"
    sure = sum(each.significant for each in by_column.values())
    if sure == len(by_column):
        return ""
    return f"; {sure} of these {len(by_column)} differences {'is' if sure == 1 else 'are'} significant"


def _gain_over_rate(found: Tables) -> list[str]:
    rates = {name: found.table.noise(name) for name in found.columns}
    pairs = [
        (low, high)
        for low, (kind, rate) in rates.items()
        for high, (same, higher) in rates.items()
        if kind == same and 0 < rate < higher
    ]
    forms = [form for form in FORMS if form in found.table.rows]
    if not pairs or not forms or PLAIN not in found.table.rows:
        return []
    lines = []
    for form in forms:
        gain = found.minus(form, PLAIN)
        known = [(low, high) for low, high in pairs if {low, high} <= gain.keys()]
        told = [f"{low} {signed(gain[low].mean)}, {high} {signed(gain[high].mean)}" for low, high in known]
        grown = sum(gain[high].mean > gain[low].mean for low, high in known)
        lines.append(f"- `{form}`: it grows in {grown} of {len(known)} kinds of noise ({'; '.join(told)}).")
    return [
        "### The gain grows with the rate",
        prose("In the paper its gain over cross entropy grows with the share of wrong labels. Here, minus it:"),
        "\n".join(lines),
    ]


def in_steps(whole: Sweep) -> Sweep:
    """The rows from cross entropy to MSLG as released, where all of them are finished."""
    return whole.only(list(STEPS)).finished_part(least=len(STEPS))


def seeds_of(sweep: Sweep) -> str:
    """How many, in words."""
    return "one seed" if len(sweep.grid.seeds) == 1 else f"{len(sweep.grid.seeds)} seeds"


def parts(whole: Sweep) -> list[str]:
    """From cross entropy to MSLG as released, one part at a time: its schedule, its loss, its label learning."""
    part = in_steps(whole)
    if not part.results:
        return []
    places, labels = part.summary().places, part.summary(TABLE).places
    lines = []
    for column in part.columns:
        means = [places[row, column].mean for row in STEPS]
        right = labels[BASE, column].mean
        known = [f"{value:.1f}" for value in (*means, right) if value is not None]
        lines.append([column, *known])
    return [
        "## Is it the labels?",
        prose(
            f"From cross entropy to `{BASE}` in three steps: the paper's schedule, then its loss with labels that stay",
            "as given (`label_rate = 0`), then label learning. Test accuracy in the last epoch; the last column is the",
            f"share of labels in the table that are right at the end; {seeds_of(part)}.",
        ),
        table(["column", *STEPS.values(), "labels right"], lines),
    ]


def one_thing_changed(whole: Sweep) -> Sweep:
    """The rows that change one thing, in the columns and seeds that all of them have; empty if there are none."""
    rows = [BASE, *(row for row in whole.rows if row.startswith(ABLATED))]
    cells = whole.results
    columns = [name for name in whole.columns if all((row, name, whole.grid.seeds[0]) in cells for row in rows)]
    return whole.only(rows, columns).finished_part(least=len(rows))


def ablations(whole: Sweep) -> list[str]:
    """What each of them does."""
    part = one_thing_changed(whole)
    if not part.results:
        return []
    lines = []
    for row in part.rows[1:]:
        found, labels = part.minus(row, BASE), part.minus(row, BASE, TABLE)
        words = [f"{with_interval(found.get(name))} ({with_interval(labels.get(name))})" for name in part.columns]
        lines.append([row.removeprefix(ABLATED), *words])
    return [
        "## One thing changed",
        prose(
            f"`{BASE}` with one thing changed, minus itself: test accuracy in points, and in parentheses the share of",
            f"labels in the table that are right; {seeds_of(part)}.",
        ),
        table(["changed", *part.columns], lines),
    ]

"""docs/results/ablations.md: the paper's design claims, each tested by changing one thing."""

from __future__ import annotations

from dataclasses import dataclass

from mslg.sweeps.table import Difference

from .sweep import TABLE, Sweep
from .words import listed, of_columns, prose, table, verdict, with_interval


@dataclass(frozen=True)
class Claim:
    """What the paper says, the rows that change it, and the row that should fall below the base if it is right."""

    title: str
    says: str
    rows: str  # how their names begin
    worse: str | None


CLAIMS = (
    Claim(
        "The direction of the divergence",
        prose(
            "Of its two classification losses the paper believes L_c,2, KL(p‖ŷ), to be the better choice: L_c,1,",
            "KL(ŷ‖p), would learn from the wrong label and hardly from the right one. It gives an argument by",
            "gradients and no numbers.",
        ),
        "L_c,",
        "L_c,1",
    ),
    Claim(
        "The entropy loss",
        prose(
            "An entropy loss makes the predictions peak at one class, so that they differ from the soft labels and",
            "learning does not come to a halt. No numbers.",
        ),
        "no entropy",
        "no entropy loss",
    ),
    Claim(
        "The warm-up",
        prose(
            "Without training on the given labels first, random feedback of the network would lead the labels astray.",
            "The paper takes 44 of 120 epochs, which is 2 of 6; 4 of 6 would be a long one.",
        ),
        "warm-up",
        "warm-up 0",
    ),
    Claim(
        "The look-ahead",
        prose(
            "The clean gradient is taken at weights one step ahead, which makes the problem a bilevel one; α = 0.5 in",
            "the paper, 0.05 by the averaging of its code. Not compared with taking none.",
        ),
        "look-ahead",
        "look-ahead 0",
    ),
    Claim(
        "Learning the labels",
        prose(
            "The label learning is the method. A label rate of 0 keeps its loss and its warm-up and leaves the labels",
            "as given; the paper has no such control.",
        ),
        "label rate",
        "label rate 0",
    ),
)


def page(sweep: Sweep) -> str:
    """The page."""
    base = sweep.grid.reference or sweep.rows[0]
    row = next(each for each in sweep.grid.rows if each.name == base)
    settings = sweep.grid.cell(row, sweep.grid.columns[0], sweep.grid.seeds[0]).settings["method"]
    told = ", ".join(f"`{key} = {value}`" for key, value in settings.items() if key != "name")
    return "\n\n".join(
        [
            "# Ablations",
            prose(
                "The paper argues for each part of MSLG without an experiment that leaves it out. Here one thing is",
                f"changed at a time, on [frozen features](features.md) of CIFAR-10. The row `{base}` is MSLG with",
                f"{told or 'its defaults'}.",
            ),
            sweep.header,
            sweep.notes,
            sweep.numbers(head="changed", link=False),
            "## Claim by claim",
            prose(
                f"Each row minus `{base}`, seed by seed, with 95 % intervals; bold: the interval leaves zero out. –:",
                "not finished, or diverged. A claim holds in a column if the row without it is significantly below.",
            ),
            *(part for claim in CLAIMS for part in _claim(sweep, base, claim)),
            *_labels(sweep, base),
        ]
    )


def judged(found: dict[str, Difference], columns: int) -> str:
    """Whether leaving something out did harm, column by column."""
    if not found:
        return "nothing to judge yet"
    harmed = [name for name, each in found.items() if each.significant and each.mean < 0]
    helped = [name for name, each in found.items() if each.significant and each.mean > 0]
    open_ = [name for name, each in found.items() if not each.significant]
    parts = [
        f"{words} {listed(names)}"
        for words, names in (("holds in", harmed), ("is contradicted in", helped), ("is not decided in", open_))
        if names
    ]
    return f"{of_columns(len(found), columns)}, the claim {'; it '.join(parts)}"


def _claim(sweep: Sweep, base: str, claim: Claim) -> list[str]:
    rows = [row for row in sweep.rows if row.startswith(claim.rows)]
    if not rows:
        return []
    found = {row: sweep.minus(row, base) for row in rows}
    lines = []
    for row in rows:
        words = [f"{with_interval(found[row].get(name))}, {verdict(found[row].get(name))}" for name in sweep.columns]
        lines.append([row, *("–" if word == "–, –" else word for word in words)])
    parts = [f"### {claim.title}", claim.says, table(["", *sweep.columns], lines)]
    if claim.worse in found:
        parts.append(prose(f"`{claim.worse}`: {judged(found[claim.worse], len(sweep.columns))}."))
    return parts


def _labels(sweep: Sweep, base: str) -> list[str]:
    rows = [row for row in sweep.rows if row != base]
    found = {row: sweep.minus(row, base, TABLE) for row in rows}
    lines = [[row, *(with_interval(found[row].get(column)) for column in sweep.columns)] for row in rows]
    return [
        "## The labels",
        f"The share of labels in the label table that are right, each row minus `{base}`.",
        table(["", *sweep.columns], lines),
    ]

"""docs/results/clean-samples.md: accuracy over the number of clean samples, and the paper's two claims about it."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from mslg.sweeps.table import Difference, difference

from .sweep import Sweep
from .words import NOTHING, amount, capital, listed, prose, signed, table, thousands, verdict, with_interval

FEW, ENOUGH = 250, 1000  # 1,000 are the paper's 2 %
NEAR = 1.0  # points


def page(sweep: Sweep, folder: Path) -> str:
    """The page; its picture goes into the folder."""
    drawn = sweep.picture(folder / "clean-samples.svg", "clean", "CIFAR-10 features: number of clean samples")
    picture = "![Test accuracy over the number of clean samples, a line for each noise rate](clean-samples.svg)"
    return "\n\n".join(
        [
            "# How many clean samples?",
            prose(
                "The paper shows a figure of MSLG's accuracy over the number of clean samples and draws two",
                "conclusions from it: 1,000 of them (2 % of the training data) give about the top result, and the",
                "number needed does not depend on the noise ratio. It prints no numbers; here are ours, on [frozen",
                "features](features.md) with feature-dependent noise, where the clean samples matter most.",
            ),
            sweep.header,
            picture if drawn else "There is no picture yet: it needs finished cells of at least two sizes.",
            sweep.notes,
            sweep.numbers(head="clean samples", link=False),
            *_enough(sweep),
            *_independent(sweep),
        ]
    )


def sizes(sweep: Sweep) -> dict[int, str]:
    """The rows by their number of clean samples, from few to many."""
    found = {}
    for row in sweep.grid.rows:
        cell = sweep.grid.cell(row, sweep.grid.columns[0], sweep.grid.seeds[0])
        found[int(cell.settings["data"]["clean"])] = row.name
    return dict(sorted(found.items()))


def _enough(sweep: Sweep) -> list[str]:
    rows = sizes(sweep)
    most = max(rows)
    found = sweep.minus(rows[most], rows.get(ENOUGH, ""))
    lines = [[column, with_interval(found.get(column)), nearly(found.get(column))] for column in sweep.columns]
    head = ["noise", f"accuracy with {thousands(most)} − with {thousands(ENOUGH)}", "verdict"]
    judged = [nearly(each) for each in found.values()]
    holds = sum(words.startswith("yes") for words in judged)
    told = (
        f"The claim holds in {holds} of the {len(judged)} columns that are finished."
        if judged
        else "Nothing to judge yet."
    )
    return [
        f"## Claim 1: {thousands(ENOUGH)} are nearly enough",
        prose(
            f"What {thousands(most)} clean samples give more than {thousands(ENOUGH)}, in points, seed by seed with 95",
            f"% intervals. *Nearly* is taken as: less than {NEAR:.0f} point.",
        ),
        table(head, lines),
        told,
    ]


def nearly(found: Difference | None) -> str:
    """Whether what is missing to the top is small."""
    if found is None:
        return NOTHING
    if found.mean >= NEAR:
        return f"no: {amount(found.mean)} points are missing"
    if found.high is None:
        return f"{signed(found.mean)} points, one seed, no interval"
    if found.high < NEAR:
        return f"yes: less than {NEAR:.0f} point is missing"
    return f"on average yes, but the interval reaches {signed(found.high)}"


def from_where(sweep: Sweep, column: str) -> int | None:
    """The number of clean samples from which on the accuracy stays near that with the most."""
    means = {}
    for size, row in sizes(sweep).items():
        place = sweep.whole(row, column)
        if place is None or place.mean is None:
            return None
        means[size] = place.mean
    top = means[max(means)]
    first = max(means)
    for size in sorted(means, reverse=True):
        if means[size] < top - NEAR:
            break
        first = size
    return first


def _independent(sweep: Sweep) -> list[str]:
    rows = sizes(sweep)
    most = max(rows)
    gains = sweep.minus(rows[most], rows.get(FEW, ""))
    needs = {column: from_where(sweep, column) for column in sweep.columns}
    lines = []
    for column in sweep.columns:
        need = needs[column]
        lines.append([column, NOTHING if need is None else thousands(need), with_interval(gains.get(column))])
    between = _between_gains(sweep, rows[most], rows.get(FEW, ""))
    pairs = [[f"{second} − {first}", with_interval(each), verdict(each)] for (first, second), each in between.items()]
    head = ["noise", f"within {NEAR:.0f} point from … on", f"{thousands(most)} − {thousands(FEW)} clean samples"]
    parts = [
        "## Claim 2: the need does not depend on the noise ratio",
        prose(
            f"The number of clean samples from which on the mean accuracy is within {NEAR:.0f} point of that with",
            f"{thousands(most)}, and what {thousands(most)} give more than {thousands(FEW)}. If the need did not",
            "depend on the ratio, both would be the same in every line.",
        ),
        table(head, lines),
    ]
    if pairs:
        parts += [
            "The gain of one ratio minus that of another, seed by seed:",
            table(["ratios", "difference", "verdict"], pairs),
        ]
    return [*parts, _verdict(sweep, needs, between)]


def _between_gains(sweep: Sweep, most: str, few: str) -> dict[tuple[str, str], Difference]:
    gain = {}
    for column in sweep.columns:
        top, low = sweep.whole(most, column), sweep.whole(few, column)
        if top is not None and low is not None:
            gain[column] = {seed: value - low.values[seed] for seed, value in top.values.items()}
    found = {(a, b): difference(gain[b], gain[a]) for a, b in combinations(gain, 2)}
    return {pair: each for pair, each in found.items() if each is not None}


def _verdict(sweep: Sweep, needs: dict[str, int | None], between: dict[tuple[str, str], Difference]) -> str:
    pairs = len(list(combinations(sweep.columns, 2)))
    if len(between) < pairs or None in needs.values():
        return f"{len(between)} of {pairs} pairs of ratios can be compared so far; the claim is judged when all can."
    differ = [f"{b} against {a}" for (a, b), each in between.items() if each.significant]
    numbers = sorted({need for need in needs.values() if need is not None})
    same = (
        f"the number needed is {thousands(numbers[0])} at every ratio"
        if len(numbers) == 1
        else f"the number needed lies between {thousands(numbers[0])} and {thousands(numbers[-1])}"
    )
    gains = f"the gain differs significantly ({listed(differ)})" if differ else "the gains do not differ significantly"
    holds = "The claim holds here" if not differ and len(numbers) == 1 else "The claim does not hold here"
    if not differ and len(numbers) > 1:
        holds = "The claim is not refuted here"
    return f"{capital(same)}, and {gains}. {holds}."

"""What the paper claims, a paragraph each for docs/results/index.md: holds here, holds in part, does not, or cannot be
told. The verdict is counted over the columns of the finished tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from mslg.sweeps.table import Difference

from .clean_samples import ENOUGH, NEAR, from_where, nearly, sizes
from .memorising_claims import BASE, best_of_ten, certainty, in_steps, one_thing_changed, seeds_of, the_ten
from .memorising_claims import ENOUGH as OTHERS
from .memorising_tables import ABLATED, Tables, tables, whole_table
from .sweep import Sweep
from .words import listed, prose, signed

PLAIN = "cross-entropy"
FORM = "mslg released"  # as the authors' code does it; the published step sizes are ten times as large
SHORTLY = 3.0  # points: in the paper it is at most 2.5 behind
THERE = {"warm-up 0": "warm-up 1"}  # what networks that memorise have instead
KINDS = ("uniform", "feature-dependent", "feature-dependent-released")
PARTS = {
    "L_c,1": ("Its loss L_c,2, KL(p‖ŷ), is better than L_c,1.", "#the-direction-of-the-divergence"),
    "no entropy loss": ("The entropy loss keeps learning going.", "#the-entropy-loss"),
    "warm-up 0": ("Labels must not be learned before a warm-up.", "#the-warm-up"),
    "label rate 0": ("Learning the labels is what helps.", "#learning-the-labels"),
}


def section(features: Sweep, ablations: Sweep, clean: Sweep, memorised: Sweep) -> list[str]:
    """The claims, with what the tables show; the last is of networks that memorise."""
    if not (features.results and ablations.results and clean.results):
        return []
    found = tables(memorised)
    lines = [
        *_structured(features, found),
        *_uniform(features, found),
        *_rate(features, found),
        *(line + _memorised_part(memorised, row) for row in PARTS for line in _part(ablations, row)),
        *(line + _more_clean(memorised) for line in _enough(clean)),
        *_same_need(clean),
    ]
    return [
        "## What the paper claims",
        prose(
            f"On frozen features, with `{FORM}`; networks that learn their own features and memorise have [a table of",
            "their own](memorising.md). Methods that are told the true rate or matrix do not count among the others.",
            "A claim *holds* if it is significant in every column that it is about, *holds in part* if in some and",
            "contradicted in none, *does not hold* if it is contradicted in some, and *cannot be told* if nothing is",
            "significant.",
        ),
        "\n".join(f"- {line}" for line in lines),
    ]


def verdict(found: Iterable[Difference]) -> str:
    """Of differences that the claim says are above zero."""
    known = list(found)
    right = sum(each.significant and each.mean > 0 for each in known)
    wrong = sum(each.significant and each.mean < 0 for each in known)
    if wrong:
        return f"**Does not hold** here (contradicted in {wrong} of {len(known)} columns, right in {right})"
    return _counted(right, len(known), "columns", none="Cannot be told")


def _counted(right: int, number: int, what: str, none: str = "Does not hold") -> str:
    if right in (0, number):
        return "**Holds** here" if right else f"**{none}** here"
    return f"**Holds in part** here ({right} of {number} {what})"


def _line(says: str, words: str, told: str, page: str, anchor: str = "") -> str:
    return f"*{says}* {words}: {told} ([table]({page}.md{anchor}))."


def _columns(sweep: Sweep, kind: str) -> list[str]:
    return [name for name in sweep.columns if sweep.noise(name)[0].startswith(kind) and sweep.noise(name)[1] > 0]


def _against_ten(sweep: Sweep, columns: Sequence[str]) -> tuple[list[Difference], str]:
    """By column, the form minus the best of the paper's other methods; and in words."""
    found = best_of_ten(whole_table(sweep), FORM, columns)
    return [each for _, each in found.values()], _told(found)


def _told(found: Mapping[str, tuple[str, Difference]]) -> str:
    return ", ".join(f"{column} {signed(each.mean)} to {best}" for column, (best, each) in found.items())


def _memorised(found: Tables, kind: str) -> str:
    """The same where networks memorise, if enough of the ten have been run there."""
    by_column = best_of_ten(found, FORM, found.noisy(kind)) if len(the_ten(found.table)) >= OTHERS else {}
    if not by_column:
        return ""
    above = sum(each.mean > 0 for _, each in by_column.values())
    sure = certainty(found, {column: each for column, (_, each) in by_column.items()})
    return (
        f" Where networks memorise, above the best in {above} of {len(by_column)} columns: {_told(by_column)}{sure} "
        "([table](memorising.md))."
    )


def _structured(sweep: Sweep, memorised: Tables) -> list[str]:
    found, told = _against_ten(sweep, _columns(sweep, "feature-dependent"))
    says, more = "MSLG is the best of eleven methods under feature-dependent noise.", _memorised(memorised, "feature")
    return [_line(says, verdict(found), told, "features") + more] if found else []


def _uniform(sweep: Sweep, memorised: Tables) -> list[str]:
    found, told = _against_ten(sweep, _columns(sweep, "uniform"))
    near = sum(each.mean > -SHORTLY for each in found)
    words = _counted(near, len(found), f"columns at most {SHORTLY:.0f} points behind")
    more = _memorised(memorised, "uniform")
    return [_line("Under uniform noise it falls shortly behind.", words, told, "features") + more] if found else []


def _rate(sweep: Sweep, memorised: Tables) -> list[str]:
    gain = sweep.minus(FORM, PLAIN)
    means = {
        kind: [gain[name].mean for name in _columns(sweep, kind) if name in gain and sweep.noise(name)[0] == kind]
        for kind in KINDS
    }
    known = {kind: values for kind, values in means.items() if len(values) > 1}
    grows = sum(all(later > earlier for earlier, later in pairwise(values)) for values in known.values())
    told = listed([f"{kind} {', '.join(map(signed, values))}" for kind, values in known.items()] or [""])
    words = _counted(grows, len(known), "kinds of noise")
    says, told = "Its gain over cross entropy grows with the rate.", f"from the lowest rate to the highest, {told}"
    gained = memorised.minus(FORM, PLAIN)
    more = ", ".join(f"{column} {signed(gained[column].mean)}" for column in memorised.noisy("") if column in gained)
    more = f" Where networks memorise: {more}." if more else ""
    return [_line(says, words, told, "features") + more] if known else []


def _part(sweep: Sweep, row: str) -> list[str]:
    """A part that the paper holds to be needed: the base minus the row without it."""
    found = sweep.minus(sweep.grid.reference or sweep.rows[0], row)
    told = ", ".join(f"{column} {signed(each.mean)}" for column, each in found.items())
    says, anchor = PARTS[row]
    words = f"with it minus without it, {told}"
    return [_line(says, verdict(found.values()), words, "ablations", anchor)] if found else []


def _memorised_part(memorised: Sweep, row: str) -> str:
    """The same where networks memorise."""
    by_steps = row == "label rate 0"  # which has been run in more columns
    part = in_steps(memorised) if by_steps else one_thing_changed(memorised)
    gain = part.minus(BASE, ABLATED + THERE.get(row, row)) if part.results else {}
    told = ", ".join(f"{column} {signed(each.mean)}" for column, each in gain.items())
    link = "is-it-the-labels" if by_steps else "one-thing-changed"
    there = f", a warm-up of {THERE[row].removeprefix('warm-up ')} epoch" if row in THERE else ""
    return f" Where networks memorise ({seeds_of(part)}{there}, [table](memorising.md#{link})): {told}." if gain else ""


def _more_clean(memorised: Sweep) -> str:
    """What more clean samples add where networks memorise."""
    part = one_thing_changed(memorised)
    more = part.minus(ABLATED + "4000 clean", BASE) if part.results else {}
    told = ", ".join(f"{column} {signed(each.mean)}" for column, each in more.items())
    link = "[table](memorising.md#one-thing-changed)"
    return f" Where networks memorise ({seeds_of(part)}, {link}), what 4,000 add: {told}." if more else ""


def _enough(sweep: Sweep) -> list[str]:
    rows = sizes(sweep)
    found = sweep.minus(rows[max(rows)], rows.get(ENOUGH, ""))
    words = _counted(sum(nearly(each).startswith("yes") for each in found.values()), len(found), "columns")
    told = ", ".join(f"{column} {signed(each.mean)}" for column, each in found.items())
    says, told = f"{ENOUGH:,} clean samples are nearly enough.", f"what {max(rows):,} add, {told}"
    return [_line(says, words, told, "clean-samples")] if found else []


def _same_need(sweep: Sweep) -> list[str]:
    needs = {column: need for column in sweep.columns if (need := from_where(sweep, column)) is not None}
    words = "**Holds** here" if len(set(needs.values())) == 1 else "**Does not hold** here"
    told = ", ".join(f"{column} {need:,}" for column, need in needs.items())
    says = "How many are needed does not depend on the rate."
    told = f"within {NEAR:.0f} point of the most from … on, {told}"
    return [_line(says, words, told, "clean-samples")] if len(needs) > 1 else []

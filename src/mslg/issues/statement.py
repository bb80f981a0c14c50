"""What can be said about a list of label issues, in sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

FIRST = 200  # depth of the list whose precision is told
PER_CLASS = 10  # held-out clean samples, at least, where the noise is estimated from the network's confusion
TOO_FEW_PER_CLASS = (
    f"without given labels of clean samples, at least {PER_CLASS} held-out clean samples per class are needed"
)

# On frozen features of CIFAR-10 with eight noises, 20 draws of 100 and of 300 clean samples each: fdr=0.1 flags nothing
# in 57 of 80 draws with 5 to 15 wrong labels among them, in 9 of 60 with about 20, and in 3 of 160 with 30 or more.
# Of the flagged labels .01 to .09 are right, on average over the draws; where nothing is flagged, 0.
ENOUGH_WRONG = 30  # wrong labels among the clean samples from which most lists can be flagged at a rate
TOGETHER = 50  # samples to check, rounded up to a multiple


def why_unknown(errors: Mapping[str, Any]) -> str:
    """Why the number of wrong labels is not stated: it would take samples with both labels, however many others there
    are."""
    why = errors.get("why")
    return str(why) if why and why != TOO_FEW_PER_CLASS else "that takes clean samples with given and verified labels"


def statement(errors: Mapping[str, Any], *, samples: int, flagged: int) -> list[str]:
    """How many labels are wrong, and how far to trust the list; or that it cannot be told.

    Args:
        errors: the entry "label_errors" of a summary.
        samples: how many labels were ranked.
        flagged: how many of them are flagged.
    """
    if "count" not in errors:
        why = errors.get("why") or "there is no estimate"
        return [
            f"{flagged:,} of {samples:,} labels are flagged.",
            f"How many of these are really wrong, and how many wrong labels there are in all, cannot be stated: {why}.",
            "Verify 100 random samples and pass their labels.",
        ]
    count = errors["count"]
    interval = f"{count['low']:,.0f} to {count['high']:,.0f}, 90 % interval"
    basis = f"estimated on {errors['samples']:,} samples with given and verified labels"
    told = [f"About {count['estimate']:,.0f} of {samples:,} labels are wrong ({interval}), {basis}."]
    if flagged:
        told.append(f"{flagged:,} are flagged; about {_share(errors['flagged'])} of these are wrong.")
    elif "why" in errors["flagged"]:
        why = errors["flagged"]["why"]
        told.append(f"{why[:1].upper()}{why[1:]}.")
    steps = [step for step in errors["precision"] if step["depth"] <= FIRST]
    if steps and samples > steps[-1]["depth"]:
        told.append(f"Of the {steps[-1]['depth']:,} worst, about {_share(steps[-1])} are.")
    return told


def why_none_flagged(fdr: float, clean: int, share: float, first: Mapping[str, float]) -> str:
    """Why no label can be flagged at this false discovery rate, and what to do.

    Args:
        fdr: the false discovery rate that was asked for.
        clean: how many clean samples the estimate rests on.
        share: the estimated share of wrong labels.
        first: the estimated precision of the top of the list, with its depth.
    """
    told = (
        f"no label is flagged: by {clean:,} clean samples, about {_share(first)} of the {first['depth']:,} worst "
        f"labels are wrong, and a false discovery rate of {fdr:g} takes {100 * (1 - fdr):.0f} %"
    )
    if first["estimate"] >= 1 - fdr:
        return (
            "no label is flagged: for none of the worst labels is another class likelier than the given one; pass "
            'flag="expected" (--flag expected)'
        )
    more = TOGETHER * math.ceil((ENOUGH_WRONG / max(share, 1e-3) - clean) / TOGETHER)
    advice = f"check about {more:,} more random samples"
    if more <= 0:
        advice = "more clean samples would hardly change that: allow a higher rate"
    return f'{told}; {advice}, or pass flag="expected" (--flag expected)'


def _share(row: Mapping[str, float]) -> str:
    return f"{100 * row['estimate']:.0f} % ({100 * row['low']:.0f} to {100 * row['high']:.0f})"

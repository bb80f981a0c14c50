"""What can be said about a list of label issues, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIRST = 200  # depth of the list whose precision is told
PER_CLASS = 10  # held-out clean samples, at least, where the noise is estimated from the network's confusion
TOO_FEW_PER_CLASS = (
    f"without given labels of clean samples, at least {PER_CLASS} held-out clean samples per class are needed"
)


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
    steps = [step for step in errors["precision"] if step["depth"] <= FIRST]
    if steps and samples > steps[-1]["depth"]:
        told.append(f"Of the {steps[-1]['depth']:,} worst, about {_share(steps[-1])} are.")
    return told


def _share(row: Mapping[str, float]) -> str:
    return f"{100 * row['estimate']:.0f} % ({100 * row['low']:.0f} to {100 * row['high']:.0f})"

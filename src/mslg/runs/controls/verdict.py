"""Whether a method was better than its controls, in numbers and in one plain sentence.

Compared are answers to the same held-out samples, so only those count that one got right and the other wrong:

    p = (right where the other is wrong + 1) / (n + 2),   q the other way round
    interval = p − q ± z·√((p + q − (p − q)²) / (n + 2))

the adjusted interval for paired proportions of Bonett and Price (2012). Without the adjustment few samples would look
sure, and none that differ would give an interval of no width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

LEVEL = 0.9
Z = 1.6449  # of 90 %, both sides


@dataclass(frozen=True)
class Answers:
    """What a control got right."""

    name: str
    words: str
    right: Tensor  # (report samples,) bool
    select: float  # accuracy on the select part
    use: str  # how to get it


def judge(method: str, right: Tensor, controls: list[Answers], *, select: int) -> dict[str, Any]:
    """The comparison as it stands in a run's summary. The best control is the one that was best on the `select` other
    held-out samples: the best on the report samples would owe part of its place to chance."""
    if not controls:
        return not_compared("no control could be trained")
    rows = [_row(right, control) for control in controls]
    best = max(range(len(rows)), key=lambda place: (rows[place]["select_accuracy"], place))
    helped, ending = _ending(rows[best], [row for row in rows if row is not rows[best]])
    opening = {True: "helped: ", False: "did not help: ", None: "was "}[helped]
    verdict = (
        f"{method} {opening}right on {_percent(_share(right))} of {len(right)} held-out clean samples; the best "
        f"control (chosen on {select} others), {rows[best]['words']}, on {_percent(rows[best]['accuracy'])}: {ending}"
    )
    return {
        "verdict": verdict,
        "helped": helped,
        "samples": len(right),
        "accuracy": _share(right),
        "best": rows[best]["name"],
        "level": LEVEL,
        "controls": rows,
    }


def _ending(best: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> tuple[bool | None, str]:
    """Whether it helped, and why that can be said."""
    difference, low, high = (100 * best[key] for key in ("difference", "low", "high"))
    signed = f"difference {difference:+.1f} points (90 % interval {low:+.1f} to {high:+.1f})"
    if high < 0:
        by = f"better by {-difference:.1f} points (90 % interval {-high:.1f} to {-low:.1f})"
        return False, f"{by}; use it instead with {best['use']}"
    if low <= 0:
        return None, f"{signed}: no difference is shown"
    # One that chance has kept from being the best on select must not be passed over.
    as_good = [row["words"] for row in others if row["difference"] <= 0]
    if as_good:
        return None, f"{signed}, but as good or better was {', '.join(as_good)}: no gain is shown"
    return True, signed + (", and every other control was worse too" if others else "")


def not_compared(why: str) -> dict[str, Any]:
    """The comparison that was not made."""
    return {"verdict": f"not compared: {why}", "helped": None, "samples": 0, "accuracy": None, "controls": []}


def paired_interval(right: Tensor, other: Tensor) -> tuple[float, float]:
    """Where the difference of the two accuracies lies, with 90 % confidence."""
    samples = len(right) + 2
    gained = (int((right & ~other).sum()) + 1) / samples
    lost = (int((other & ~right).sum()) + 1) / samples
    difference = gained - lost
    half = Z * ((gained + lost - difference**2) / samples) ** 0.5
    return max(-1.0, difference - half), min(1.0, difference + half)


def _row(right: Tensor, control: Answers) -> dict[str, Any]:
    low, high = paired_interval(right, control.right)
    accuracy = _share(control.right)
    return {
        "name": control.name,
        "words": control.words,
        "accuracy": accuracy,
        "difference": _share(right) - accuracy,
        "low": low,
        "high": high,
        "select_accuracy": control.select,
        "use": control.use,
    }


def _share(right: Tensor) -> float:
    return float(right.double().mean())


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

"""Whether a method was better than its controls: a verdict of a few words, and the numbers.

Both predict the same held-out samples, so only those matter that one gets right and the other wrong:

    p = (right where the other is wrong + 1) / (n + 2),   q vice versa
    interval = p − q ± z·√((p + q − (p − q)²) / (n + 2))

the adjusted interval for paired proportions of Bonett and Price (2012). Unadjusted, the interval would be too narrow
for few samples, and have zero width where no prediction differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

LEVEL = 0.9
Z = 1.6449  # two-sided 90 %


@dataclass(frozen=True)
class Answers:
    """What a control got right."""

    name: str
    words: str
    right: Tensor  # (report samples,) bool
    select: float  # accuracy on the select part
    use: str  # options of `mslg fit` that reproduce it


def judge(
    method: str, right: Tensor, controls: list[Answers], *, select: int, samples: str = "held-out clean samples"
) -> dict[str, Any]:
    """The comparison for a run's summary. The best control is chosen on the `select` other held-out samples, since the
    best on the report samples would partly be best by chance. Without such samples (0) it is, and the comparison errs
    on the side of the controls. `samples` says what the report samples are."""
    if not controls:
        return not_compared("no control could be trained")
    rows = [_row(right, control) for control in controls]
    best = max(range(len(rows)), key=lambda place: (rows[place]["select_accuracy"], place))
    helped, ending = _ending(rows[best], [row for row in rows if row is not rows[best]])
    points = 100 * rows[best]["difference"]
    short = "No difference shown."
    if helped is not None:
        short = f"It {'helped' if helped else 'did not help'}: {points:+.1f} points."
    how = f"{samples}; the best control (chosen on {select} others), {rows[best]['words']},"
    if not select:
        how = f"clean samples (cross-validated); its best component alone ({rows[best]['words']})"
    verdict = (
        f"{short} {method} was right on {_percent(_share(right))} of {len(right)} {how} on "
        f"{_percent(rows[best]['accuracy'])}: {ending}"
    )
    return {
        "verdict": verdict,
        "short": short,
        "helped": helped,
        "samples": len(right),
        "out_of_fold": not select,
        "accuracy": _share(right),
        "best": rows[best]["name"],
        "level": LEVEL,
        "controls": rows,
    }


def _ending(best: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> tuple[bool | None, str]:
    """Whether the method helped, and the evidence."""
    difference, low, high = (100 * best[key] for key in ("difference", "low", "high"))
    signed = f"difference {difference:+.1f} points (90 % interval {low:+.1f} to {high:+.1f})"
    if high < 0:
        by = f"better by {-difference:.1f} points (90 % interval {-high:.1f} to {-low:.1f})"
        return False, f"{by}; use it instead with {best['use']}"
    if low <= 0:
        return None, signed
    # A control that missed being the best on select by chance must not be overlooked.
    as_good = [row["words"] for row in others if row["difference"] <= 0]
    if as_good:
        return None, f"{signed}, but {', '.join(as_good)} did at least as well: no gain is shown"
    return True, signed + (", and every other control was worse too" if others else "")


def not_compared(why: str) -> dict[str, Any]:
    """The summary entry of a comparison that was not made."""
    return {"verdict": f"not compared: {why}", "helped": None, "samples": 0, "accuracy": None, "controls": []}


def paired_interval(right: Tensor, other: Tensor) -> tuple[float, float]:
    """90 % confidence interval of the difference between the two accuracies."""
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

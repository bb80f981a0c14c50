"""docs/results/ladder.md: what each cheaper way to the labels costs in accuracy."""

from __future__ import annotations

from mslg.sweeps.table import Difference

from .sweep import TABLE, Sweep
from .words import listed, prose, signed, table, with_interval

FAST = "fast"
BOUND = 0.5  # points of accuracy that the preset may lose


def page(features: Sweep, published: Sweep, pixels: Sweep) -> str:
    """The page."""
    features, published, pixels = (sweep.finished_part(least=2) for sweep in (features, published, pixels))
    return "\n\n".join(
        [
            "# The ladder of cheaper steps",
            prose(
                "An exact step of MSLG costs about 3.5 plain ones. [Fast and lean](../speed.md) says what the cheaper",
                "ways are and what they save; here is what they do to accuracy. A row changes only how the clean",
                "gradient and its tangent are computed. `recompute` has no row: its numbers are those of `exact`.",
            ),
            _verdict([features, pixels]),
            *_sweep(
                features,
                "## MSLG's defaults, on features",
                "`label rate 0` says how much there is to lose: with the method's defaults the prior does most of the",
                "work and the label learning little, so that a poor clean gradient would hardly show.",
            ),
            *_sweep(
                published,
                "## Where the labels decide: the published form",
                "The same rungs in the published form with the label rate of the [ablations](ablations.md), at which",
                "the learned labels decide. `as fast` has the settings of the preset.",
            ),
            *_labels(published),
            *_sweep(
                pixels,
                "## MSLG's defaults, on pixels",
                "The data, network and length of [networks that memorise](memorising.md).",
            ),
        ]
    )


def _verdict(sweeps: list[Sweep]) -> str:
    """Whether the preset keeps what it promises."""
    sweeps = [sweep for sweep in sweeps if sweep.results]
    found = {f"{s.name}, {column}": each for s in sweeps for column, each in s.minus(FAST, _base(s)).items()}
    if not found:
        return f"How far the preset `{FAST}` falls behind the exact step has not been measured."
    below = [f"{name} ({signed(each.mean)})" for name, each in found.items() if each.mean < -BOUND]
    worst = min(found.values(), key=lambda each: each.mean)
    told = f"The preset `{FAST}` is, by its mean over seeds,"
    if below:
        return prose(told, f"more than {BOUND} points below the exact step in {listed(below)}.")
    return prose(
        told,
        f"within {BOUND} points of the exact step, or above it, in all {len(found)} columns; the largest loss is",
        f"{signed(min(worst.mean, 0.0))}.",
    )


def _labels(sweep: Sweep) -> list[str]:
    if not sweep.results:
        return []
    return ["The share of labels in the table that are right, each row minus `exact`:", _differences(sweep, TABLE)]


def _sweep(sweep: Sweep, title: str, *about: str) -> list[str]:
    if not sweep.results:
        return []
    return [
        title,
        prose(*about),
        sweep.header,
        sweep.notes,
        sweep.numbers(head="rung", link=False),
        prose(
            f"Each row minus `{_base(sweep)}`, seed by seed, with 95 % intervals; bold: the interval leaves zero out."
        ),
        _differences(sweep),
    ]


def _differences(sweep: Sweep, measure: str = "test/accuracy") -> str:
    base = _base(sweep)
    lines = []
    for row in sweep.rows:
        found: dict[str, Difference] = {} if row == base else sweep.minus(row, base, measure)
        words = ["" if row == base else with_interval(found.get(column)) for column in sweep.columns]
        lines.append([row, *words])
    return table([f"minus {base}", *sweep.columns], lines)


def _base(sweep: Sweep) -> str:
    return sweep.grid.reference or sweep.rows[0]

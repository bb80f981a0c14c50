"""The section on the ties in the released feature-dependent noise, and what they mean for the published columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mslg.methods import METHODS

from .sweep import Sweep
from .words import NOTHING, number, prose, spread, table, verdict

PICTURE = "Transition matrices at 60 %: by the released file, with a dark truck column, and by the fixed generator"
CLEAN = "clean-only"
NOISE_PAGE = Path(__file__).parents[2] / "docs" / "noise.md"


def sections(sweep: Sweep, ours: str, rows: Sequence[str]) -> list[str]:
    """What the ties are, what they do to the labels, and who can cope."""
    return [
        "## The tie artefact",
        prose(
            "The released file from which the authors' code makes the feature-dependent noise holds no logits but a",
            "softmax of a softmax. The second one squeezes the small probabilities together until float32 no longer",
            "tells them apart: several classes tie for second place, and the published generator sends such a sample",
            'to the last of them in the order of classes: to "truck", and trucks to "ship". The higher the rate, the',
            "more of the wrong labels are of this kind ([how they were counted](../noise.md#the-published-artefact)):",
        ),
        tie_table(),
        f"![{PICTURE}](../images/feature_noise.png)",
        prose(
            "At 60 % several classes no longer have their own label as the most frequent one, and at 80 % none has:",
            'to a method that sees only the given labels, "truck" is then the name of most things, and nothing in the',
            "data says otherwise. So far as the published 60 % and 80 % columns were made with this file, they",
            "measure above all whether a method sees clean samples, and less how well it deals with wrong labels near",
            "the boundary between classes.",
        ),
        *_with_and_without_clean(sweep, ours, rows),
    ]


def tie_table() -> str:
    """The counts, as they stand on the page about noise."""
    text = NOISE_PAGE.read_text()
    start = text.index("| noise | | 20 %")
    return text[start : text.index("\n\n", start)]


def _with_and_without_clean(sweep: Sweep, ours: str, rows: Sequence[str]) -> list[str]:
    """In the columns concerned: the best of these rows that use no clean samples, clean samples alone, and ours."""
    noises = {column: sweep.noise(column) for column in sweep.columns}
    columns = [column for column, (kind, rate) in noises.items() if kind.startswith("feature") and rate > 0.5]
    blind = [row.name for row in sweep.grid.rows if row.name in rows and not METHODS.load(sweep.method(row)).needs]
    if not columns or not blind or not {CLEAN, ours} <= set(sweep.rows):
        return []
    places = sweep.summary().places
    finished = [column for column in columns if all(places[row, column].complete for row in blind)]
    best = sweep.only(blind, finished).leaders()
    lines = [
        [
            "best without clean samples",
            *(f"{best[name]}: {number(places[best[name], name])}" if name in best else NOTHING for name in columns),
        ],
        *([row, *(number(places[row, column]) for column in columns)] for row in (CLEAN, ours)),
    ]
    verdicts = []
    for column, row in best.items():
        between, mean = sweep.minus(row, CLEAN).get(column), places[row, column].mean
        if between is not None and mean is not None:
            verdicts.append(f"- {column}: {row} ({spread(mean, None)}) against {CLEAN}: {verdict(between)}")
    told = "The best method without clean samples against training on the clean samples alone:"
    return [
        "In this sweep, with the paper's number of the same method in parentheses:",
        table(["", *columns], lines),
        *([told, "\n".join(verdicts)] if verdicts else []),
    ]

"""The samples of a cleaned data set, each with the best label there is for it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...issues import labels_file
from ...runs.folder import Run
from ..decisions import Decision, Decisions, Piece, read_checked_decisions, read_decisions
from ..division_file import read_division
from ..next_round import DECISIONS

log = logging.getLogger("mslg")

COLUMNS = ("id", "given_label", "suggested_label", "is_label_issue", "label_quality", "path")


class Sample(NamedTuple):
    """One sample and where its label comes from."""

    id: str
    label: str
    given_label: str
    decision: str  # empty if undecided
    label_source: str  # given, suggested, reviewed, or verified: one of the clean set
    path: str | None = None
    suggested_label: str | None = None  # None for clean samples
    label_quality: float | None = None


@dataclass
class Counts:
    """How many samples have which kind of label."""

    by_source: Counter[str] = field(default_factory=Counter)
    removed: int = 0
    changed: int = 0  # labels that differ from the given ones

    @property
    def samples(self) -> int:
        return self.by_source.total()


def cleaned_samples(
    run: Run, decisions: Path | str | None, *, suggested: bool = False
) -> tuple[Iterator[list[Sample]], Counts]:
    """The samples of the run's data with the labels decided on, in pieces; and the counts, which are complete when the
    last piece has been taken. Unreviewed samples keep their given label, or with `suggested` get the suggested one.
    Removed samples are left out."""
    run.require_finished(labels_file.NAME)
    found: Decisions = {}
    if decisions is not None:
        classes = run.read_json("classes.json")["classes"]
        own = run.path / DECISIONS
        before = read_checked_decisions(own, classes=classes) if own.exists() else {}
        found = read_decisions(decisions, classes=classes, samples=_known(run, before))
        _warn_of_removed(run, before, found)
    counts = Counts()
    return _counted(_pieces(run, found, suggested), counts), counts


def _known(run: Run, before: Decisions) -> Iterator[Piece]:
    """Ids and given labels of all samples that the run knows of."""
    for rows in labels_file.read_labels(run.path, ["id", "given_label"]):
        yield rows["id"].to_pylist(), rows["given_label"].to_pylist()
    clean = _clean_rows(run)
    yield [row["id"] for row in clean], [row["given_label"] for row in clean]
    yield list(before), [each.given_label for each in before.values()]  # removed samples are nowhere else


def _warn_of_removed(run: Run, before: Decisions, decisions: Decisions) -> None:
    """A run does not have the samples that were removed before it: a new decision cannot bring one back."""
    back = [name for name, each in before.items() if each.removes and _verified(decisions.get(name)) is not None]
    if back:
        log.warning(
            "%d samples with a label now were removed before %s was trained, such as '%s': they are left out; train a "
            "round with these decisions (mslg fit --from %s --decisions FILE) and apply them to that",
            *(len(back), run.path, back[0], run.path),
        )


def _pieces(run: Run, decisions: Decisions, suggested: bool) -> Iterator[list[Sample]]:
    for rows in labels_file.read_labels(run.path, COLUMNS):
        yield [_of_training(row, decisions.get(row["id"]), suggested) for row in rows.to_pylist()]
    yield [_of_clean(row, decisions.get(row["id"])) for row in _clean_rows(run)]


def _of_training(row: dict[str, Any], decision: Decision | None, suggested: bool) -> Sample:
    label, source = row["given_label"], "given"
    if (verified := _verified(decision)) is not None:
        label, source = verified, "reviewed"
    elif suggested and row["suggested_label"] != row["given_label"]:
        label, source = row["suggested_label"], "suggested"
    kind = "" if decision is None else decision.decision
    about = (row.get("path"), row["suggested_label"], row["label_quality"])
    return Sample(row["id"], label, row["given_label"], kind, source, *about)


def _of_clean(row: dict[str, Any], decision: Decision | None) -> Sample:
    """A sample of the clean set. Samples of earlier reviews may be reviewed again; verified labels are final."""
    if row["part"] != "reviewed":
        return Sample(row["id"], row["label"], row["given_label"], "", "verified", row.get("path"))
    label, kind = _verified(decision) or row["label"], "" if decision is None else decision.decision
    return Sample(row["id"], label, row["given_label"], kind, "reviewed", row.get("path"))


def _verified(decision: Decision | None) -> str | None:
    return None if decision is None else decision.verified_label


def _counted(pieces: Iterator[list[Sample]], counts: Counts) -> Iterator[list[Sample]]:
    for piece in pieces:
        kept = [sample for sample in piece if sample.decision != "remove"]
        counts.removed += len(piece) - len(kept)
        counts.by_source.update(sample.label_source for sample in kept)
        counts.changed += sum(sample.label != sample.given_label for sample in kept)
        if kept:
            yield kept


def _clean_rows(run: Run) -> list[dict[str, Any]]:
    """The clean samples that were taken out of the data."""
    return [row for row in read_division(run.path).to_pylist() if row["in_data"]]

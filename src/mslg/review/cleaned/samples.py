"""The samples of a cleaned data set, each with the best label there is for it."""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ...runs.folder import Run
from ..decisions import Decisions, Piece, read_decisions
from ..next_round import DECISIONS, read_division

log = logging.getLogger("mslg")


class Sample(NamedTuple):
    """One sample and where its label comes from."""

    id: str
    label: str
    given_label: str
    decision: str  # empty where nobody has decided
    label_source: str  # given, suggested, reviewed, or verified: one of the clean set
    path: str | None = None
    suggested_label: str | None = None
    label_quality: float | None = None


@dataclass
class Counts:
    """What became of the samples."""

    by_source: Counter[str] = field(default_factory=Counter)
    removed: int = 0
    changed: int = 0  # labels that differ from the given ones

    @property
    def samples(self) -> int:
        return self.by_source.total()


def cleaned(run: Run, decisions: Path | None, *, accept_rest: bool = False) -> tuple[Iterator[list[Sample]], Counts]:
    """The samples of the run's data in pieces, with decided labels where there are any; and the counts, which are
    complete when the last piece has been taken. Samples that nobody decided about keep their given label, or with
    `accept_rest` take the suggested one. Removed ones are left out."""
    if not (run.path / "labels.parquet").exists():
        raise FileNotFoundError(f"{run.path} has no labels yet; finish the run: mslg fit -o {run.path} --resume")
    found: Decisions = {}
    if decisions is not None:
        classes = run.read_json("classes.json")["classes"]
        found = read_decisions(decisions, classes=classes, samples=_known(run))
        _tell_removed_before(run, found)
    counts = Counts()
    return _counted(_pieces(run, found, accept_rest), counts), counts


def has_paths(run: Run) -> bool:
    """Whether the samples are files."""
    return "path" in pq.ParquetFile(run.path / "labels.parquet").schema_arrow.names


def _known(run: Run) -> Iterator[Piece]:
    """Ids and given labels of all samples of the data that the run knows of."""
    for rows in _row_groups(run, ["id", "given_label"]):
        yield rows["id"].to_pylist(), rows["given_label"].to_pylist()
    clean = _clean_rows(run)
    yield [row["id"] for row in clean], [row["given_label"] for row in clean]
    before = _decided_before(run)  # removed samples are nowhere else
    yield [row["id"] for row in before], [row["given_label"] for row in before]


def _decided_before(run: Run) -> list[dict[str, str]]:
    """The decisions that the run was started with."""
    if not (run.path / DECISIONS).exists():
        return []
    with (run.path / DECISIONS).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _tell_removed_before(run: Run, decisions: Decisions) -> None:
    """A run does not have the samples that were removed before it: a new decision cannot bring one back."""
    removed = [row["id"] for row in _decided_before(run) if row["decision"] == "remove"]
    back = [name for name in removed if name in decisions and decisions[name].verified]
    if back:
        log.warning(
            "%d samples that now have a label were removed before %s was trained, such as '%s': they are left out; "
            "train a round with these decisions (mslg fit --from %s --decisions FILE) and apply that",
            *(len(back), run.path, back[0], run.path),
        )


def _pieces(run: Run, decisions: Decisions, accept_rest: bool) -> Iterator[list[Sample]]:
    columns = ["id", "given_label", "suggested_label", "is_label_issue", "label_quality"]
    for rows in _row_groups(run, [*columns, *(["path"] if has_paths(run) else [])]):
        yield [_of_training(row, decisions, accept_rest) for row in rows.to_pylist()]
    yield [_of_clean(row, decisions) for row in _clean_rows(run)]


def _of_training(row: dict[str, Any], decisions: Decisions, accept_rest: bool) -> Sample:
    decision = decisions.get(row["id"])
    kind = "" if decision is None else decision.decision
    label, source = row["given_label"], "given"
    if decision is not None and decision.verified:
        label, source = decision.label, "reviewed"
    elif accept_rest and row["is_label_issue"]:
        label, source = row["suggested_label"], "suggested"
    about = (row.get("path"), row["suggested_label"], row["label_quality"])
    return Sample(row["id"], label, row["given_label"], kind, source, *about)


def _of_clean(row: dict[str, Any], decisions: Decisions) -> Sample:
    """A sample of the clean set. What was reviewed in an earlier round may be reviewed again; what was verified
    before any round stands."""
    label, source, kind = row["label"], "verified", ""
    if row["part"] == "reviewed":
        source = "reviewed"
        decision = decisions.get(row["id"])
        if decision is not None:
            kind, label = decision.decision, decision.label if decision.verified else label
    return Sample(row["id"], label, row["given_label"], kind, source, row.get("path"))


def _counted(pieces: Iterator[list[Sample]], counts: Counts) -> Iterator[list[Sample]]:
    for piece in pieces:
        kept = [sample for sample in piece if sample.decision != "remove"]
        counts.removed += len(piece) - len(kept)
        counts.by_source.update(sample.label_source for sample in kept)
        counts.changed += sum(sample.label != sample.given_label for sample in kept)
        if kept:
            yield kept


def _row_groups(run: Run, columns: list[str]) -> Iterator[pa.Table]:
    """One at a time: the table may be larger than memory."""
    file = pq.ParquetFile(run.path / "labels.parquet")
    for group in range(file.num_row_groups):
        yield file.read_row_group(group, columns=columns)


def _clean_rows(run: Run) -> list[dict[str, Any]]:
    """The clean samples that are samples of the data."""
    table = read_division(run)
    rows: list[dict[str, Any]] = [] if table is None else table.to_pylist()
    return [row for row in rows if row["in_data"]]

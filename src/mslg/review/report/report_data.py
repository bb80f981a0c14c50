"""The content of a report, read from the files in a run's folder."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...issues import labels_file
from ...runs.folder import Run
from .cards import Cards, read_cards
from .label_counts import LabelCounts, count_labels


@dataclass(frozen=True)
class ReportData:
    """A finished run."""

    name: str
    settings: str  # the text of config.toml
    config: dict[str, Any]
    summary: dict[str, Any]
    history: list[dict[str, Any]]  # one entry per epoch
    classes: list[str]
    labels: LabelCounts
    cards: Cards
    fingerprint: str  # of settings and suspects: the key of the decisions in the browser


def read_report_data(folder: Path, *, cards: int) -> ReportData:
    """Read a run that has its labels."""
    run = Run.open(folder)
    run.require_finished("classes.json", labels_file.NAME, "summary.json")
    settings = (folder / "config.toml").read_bytes()
    classes = [str(name) for name in run.read_json("classes.json")["classes"]]
    found = read_cards(folder, classes, most=cards)
    digest = hashlib.sha256(settings)
    digest.update("\0".join(found.ids).encode())
    return ReportData(
        name=folder.resolve().name,
        settings=settings.decode(),
        config=tomllib.loads(settings.decode()),
        summary=run.read_json("summary.json"),
        history=run.history() if (folder / "metrics.jsonl").exists() else [],
        classes=classes,
        labels=count_labels(folder, classes),
        cards=found,
        fingerprint=digest.hexdigest()[:16],
    )

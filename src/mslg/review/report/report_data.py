"""The content of a report, read from the files in a run's folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...issues import labels_file
from ...runs.finished import read_config, read_json, reading, require_finished
from ...runtime import checksums
from .cards import AUDIT, Cards, read_cards
from .label_counts import LabelCounts, count_labels
from .next_commands import after_run

READ = (
    "classes.json",
    "summary.json",
    labels_file.NAME,
    "suspects.parquet",
    AUDIT,
    "clean_samples.parquet",
    "metrics.jsonl",
)


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
    commands: dict[str, str] = field(default_factory=dict)  # what to do after a check or a review


def read_report_data(folder: Path, *, cards: int) -> ReportData:
    """Read a run that has its labels."""
    with reading(folder):
        return _read(folder, cards)


def _read(folder: Path, cards: int) -> ReportData:
    require_finished(folder, "classes.json", labels_file.NAME, "summary.json")
    checksums.check(folder, *READ)
    config = read_config(folder)
    settings = (folder / "config.toml").read_bytes()
    classes = [str(name) for name in read_json(folder / "classes.json")["classes"]]
    found = read_cards(folder, classes, most=cards)
    return ReportData(
        name=folder.resolve().name,
        settings=settings.decode(),
        config=config,
        summary=read_json(folder / "summary.json"),
        history=_history(folder / "metrics.jsonl"),
        classes=classes,
        labels=count_labels(folder, classes),
        cards=found,
        fingerprint=fingerprint_of(settings, found.ids),
        commands=after_run(folder, config, pictures=any(card["view"]["kind"] == "image" for card in found.shown)),
    )


def fingerprint_of(settings: bytes, ids: list[str]) -> str:
    """The key of the decisions in the browser."""
    digest = hashlib.sha256(settings)
    digest.update("\0".join(ids).encode())
    return digest.hexdigest()[:16]


def _history(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
    return [json.loads(line) for line in lines]

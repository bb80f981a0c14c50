"""The content of a report, read from the files in a run's folder."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...issues import labels_file
from ...runs.finished import require_finished
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
    require_finished(folder, "classes.json", labels_file.NAME, "summary.json")
    settings = (folder / "config.toml").read_bytes()
    classes = [str(name) for name in _json(folder / "classes.json")["classes"]]
    found = read_cards(folder, classes, most=cards)
    return ReportData(
        name=folder.resolve().name,
        settings=settings.decode(),
        config=tomllib.loads(settings.decode()),
        summary=_json(folder / "summary.json"),
        history=_history(folder / "metrics.jsonl"),
        classes=classes,
        labels=count_labels(folder, classes),
        cards=found,
        fingerprint=fingerprint_of(settings, found.ids),
    )


def fingerprint_of(settings: bytes, ids: list[str]) -> str:
    """The key of the decisions in the browser."""
    digest = hashlib.sha256(settings)
    digest.update("\0".join(ids).encode())
    return digest.hexdigest()[:16]


def _history(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
    return [json.loads(line) for line in lines]


def _json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value

"""The first step with new data: a page of random samples to check, before anything is trained."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from ..data.source import Source
from ..issues.previews import preview_of
from ..issues.suspects import SIDE, random_positions
from ..runtime.files import write_atomically
from ..runtime.toml import dumps
from .report import NAME
from .report.cards import Cards, audit_card
from .report.label_counts import LabelCounts
from .report.render import render
from .report.report_data import ReportData, fingerprint_of

DECISIONS = "decisions.csv"


def then(name: str, folder: Path) -> str:
    """The command that follows the check of this data, whose decisions are in this folder."""
    return shlex.join(["mslg", "fit", name, "--clean", str(folder / DECISIONS), "-o", "runs/first"])


def start_data(source: Source, name: str, folder: Path, *, seed: int = 0) -> ReportData:
    """A page's content: samples drawn at random, with their given labels and nothing else."""
    positions = random_positions(len(source), seed).tolist()
    cards = [
        audit_card(source.ids[position], int(source.label[position]), *preview_of(source, position, side=SIDE))
        for position in positions
    ]
    settings = dumps({"data": {"source": name}, "train": {"seed": seed}})
    return ReportData(
        name=Path(name).name or name,
        settings=settings,
        config={"data": {"source": name}, "train": {"seed": seed}},
        summary={"state": "started", "then": then(name, folder)},
        history=[],
        classes=list(source.classes),
        labels=LabelCounts(len(source), 0, [], []),
        cards=Cards([], [], [], [card["id"] for card in cards], audit=cards),
        fingerprint=fingerprint_of(settings.encode(), [card["id"] for card in cards]),
    )


def write_start(source: Source, name: str, folder: Path, *, seed: int = 0) -> tuple[Path, dict[str, Any]]:
    """Write the page and its samples into a folder. Returns the page's path and the content of start.json."""
    data = start_data(source, name, folder, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "format_version": 1,
        "source": name,
        "classes": data.classes,
        "samples": {card["id"]: data.classes[card["given"]] for card in data.cards.audit},
    }
    write_atomically(folder / NAME, render(data))
    write_atomically(folder / "start.json", json.dumps(about, ensure_ascii=False).encode())
    return folder / NAME, about

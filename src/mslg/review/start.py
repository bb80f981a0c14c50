"""The first step with new data: a page of random samples to check, before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from .report.next_commands import after_start
from .report.render import render
from .report.report_data import ReportData, fingerprint_of

DECISIONS = "decisions.csv"


def start_data(source: Source, name: str, folder: Path, *, seed: int = 0, options: Sequence[str] = ()) -> ReportData:
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
        summary={"state": "started"},
        history=[],
        classes=list(source.classes),
        labels=LabelCounts(len(source), 0, [], []),
        cards=Cards([], [], [], [card["id"] for card in cards], audit=cards),
        fingerprint=fingerprint_of(settings.encode(), [card["id"] for card in cards]),
        commands=after_start(name, options, folder / DECISIONS),
    )


def write_start(
    source: Source, name: str, folder: Path, *, seed: int = 0, options: Sequence[str] = ()
) -> tuple[Path, dict[str, Any]]:
    """Write the page and its samples into a folder. Returns the page's path and the content of start.json. A check that
    has begun may be opened again; another one needs another folder."""
    data = start_data(source, name, folder, seed=seed, options=options)
    _refuse_other_check(folder, {card["id"]: data.classes[card["given"]] for card in data.cards.audit})
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


def _refuse_other_check(folder: Path, samples: dict[str, str]) -> None:
    """Raise if the folder has a run, or decisions about other samples: they would be mixed with those of this check."""
    begun = folder / "start.json"
    if (folder / NAME).exists() and not begun.exists():
        raise FileExistsError(f"{folder} has a page that is not of mslg start; name another folder with -o")
    if (folder / DECISIONS).exists() and begun.exists():
        before = json.loads(begun.read_text(encoding="utf-8"))["samples"]
        if before != samples:
            raise FileExistsError(
                f"{folder} has decisions about other samples or labels; continue them with mslg review {folder}, or "
                "name another folder with -o"
            )

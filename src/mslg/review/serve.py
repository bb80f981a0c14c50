"""The server for a run's folder, or for the folder of `mslg start`."""

from __future__ import annotations

import json
from pathlib import Path

from .report import CARDS, NAME
from .report.render import render
from .report.report_data import read_report_data
from .server import Labels, ReviewServer

REVIEW = "review.csv"


def server_of(folder: Path, *, port: int = 0) -> ReviewServer:
    """A server of the folder's page. Decisions about a run go to review.csv: its decisions.csv, those that the run was
    started with, is part of its record."""
    begun = folder / "start.json"
    if begun.exists():
        about = json.loads(begun.read_text(encoding="utf-8"))
        labels: Labels = {name: (given, given) for name, given in about["samples"].items()}
        return ReviewServer((folder / NAME).read_bytes(), labels, about["classes"], folder / "decisions.csv", port)
    data = read_report_data(folder, cards=CARDS)
    cards = [*data.cards.next, *data.cards.audit, *data.cards.shown]
    labels = {card["id"]: (data.classes[card["given"]], data.classes[card["suggested"]]) for card in cards}
    audit = {card["id"] for card in data.cards.audit}
    return ReviewServer(render(data), labels, data.classes, folder / REVIEW, port, audit=audit)

"""The suspects as JSON for the page: short keys, class numbers instead of names, pictures as data URLs."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from ...data.readers.tables import accounted_for
from .embedded_json import embedded_size

BARS = 3  # likeliest classes that are shown, beside the given and the suggested one
SMALLER = (128, 80)  # pixels: sizes of pictures tried in turn if the page is too large
AUDIT, NEXT = "audit.parquet", "next.parquet"
PNG = b"\x89PNG"

Card = dict[str, Any]


@dataclass(frozen=True)
class Cards:
    """The suspects on the page and the clean samples they refer to."""

    shown: list[Card]  # worst first
    clean: list[Card]
    epochs: list[int]
    ids: list[str]  # of all suspects of the run
    missing: str | None = None  # why there are none
    audit: list[Card] = field(default_factory=list)  # samples drawn at random
    next: list[Card] = field(default_factory=list)  # samples whose review would help most

    def payload(self) -> dict[str, Any]:
        """The JSON of the page, with only those clean samples that are referred to."""
        lists = {"cards": self.shown, "audit": self.audit, "next": self.next}
        named = sorted({place for cards in lists.values() for card in cards for place in card["nearest"]})
        place = {old: new for new, old in enumerate(named)}
        return {
            **{
                name: [{**card, "nearest": [place[old] for old in card["nearest"]]} for card in cards]
                for name, cards in lists.items()
            },
            "clean": [self.clean[old] for old in named],
            "epochs": self.epochs,
        }


def read_cards(folder: Path, classes: list[str], *, most: int) -> Cards:
    """The worst suspects of a run, at most `most`."""
    path = folder / "suspects.parquet"
    if not path.exists():
        return Cards([], [], [], [], "The run's folder has no suspects.parquet, so there is nothing to review.")
    for file in [folder / name for name in (path.name, "clean_samples.parquet", AUDIT, NEXT)]:
        if file.exists():
            accounted_for(file)
    ids = pq.read_table(path, columns=["id"])["id"].to_pylist()
    if not ids:
        return Cards([], [], [], [], "No sample of this run has a label quality, so there is nothing to review.")
    rows = _worst(pq.read_table(path), most).to_pylist()
    verified = folder / "clean_samples.parquet"
    clean = pq.read_table(verified).to_pylist() if verified.exists() else []
    place = {row["id"]: number for number, row in enumerate(clean)}
    number = {name: at for at, name in enumerate(classes)}
    drawn, chosen = (
        pq.read_table(folder / name).to_pylist() if most and (folder / name).exists() else [] for name in (AUDIT, NEXT)
    )
    return Cards(
        [_card(row, number, place) for row in rows],
        [{"id": row["id"], "label": number[row["verified_label"]], "view": _view(row)} for row in clean],
        [epoch + 1 for epoch in rows[0]["history_epochs"]] if rows else [],
        ids,
        None if rows else "The page was made without samples (--cards 0).",
        [_card(row, number, place) for row in drawn],
        [_card(row, number, place) for row in chosen],
    )


def _worst(suspects: pa.Table, most: int) -> pa.Table:
    """At most `most` of the suspects, in their order: the flagged ones, then others. A label for which no other class
    is likelier may rank above one that is flagged."""
    flagged = [place for place, flag in enumerate(suspects["is_label_issue"].to_pylist()) if flag]
    others = sorted(set(range(len(suspects))) - set(flagged))
    return suspects.take(sorted([*flagged, *others][:most]))


def audit_card(name: str, given: int, kind: str, content: bytes) -> Card:
    """A sample about which nothing is known but its given label."""
    view = _view({"view_kind": kind, "view": content})
    facts: Card = {"rank": 0, "quality": None, "probs": [], "history": [], "guesses": [], "nearest": []}
    return {"id": name, "given": given, "suggested": given, **facts, "view": view}


def smaller(cards: Cards, side: int) -> Cards:
    """The same with pictures of at most `side` pixels."""
    shown, audit, chosen = (
        [{**card, "view": _shrunk(card["view"], side)} for card in part]
        for part in (cards.shown, cards.audit, cards.next)
    )
    return replace(cards, shown=shown, audit=audit, next=chosen)


def fitting(cards: Cards, room: int) -> Cards:
    """As many of the cards as fit into `room` bytes, worst first."""
    kept, used, seen = [], 0, set[int]()
    for card in cards.shown:
        new = set(card["nearest"]) - seen
        used += embedded_size(card) + sum(embedded_size(cards.clean[place]) for place in new)
        if used > room:
            break
        seen |= new
        kept.append(card)
    return replace(cards, shown=kept)


def _card(row: Card, number: dict[str, int], place: dict[str, int]) -> Card:
    given, suggested = number[row["given_label"]], number[row["suggested_label"]]
    probs = _probabilities(row, given)
    best = sorted(range(len(probs)), key=lambda at: -probs[at])
    card = {
        "id": row["id"],
        "rank": row["rank"],
        "given": given,
        "suggested": suggested,
        "flagged": bool(row["is_label_issue"]),
        "quality": _rounded(row["label_quality"]),
        "probs": [[at, _rounded(probs[at])] for at in best if at in (*best[:BARS], given, suggested)],
        "history": [_rounded(value) for value in row["history_given"]],
        "guesses": row["history_predicted"],
        "nearest": [place[name] for name in row["nearest"] if name in place],
        "view": _view(row),
    }
    more = {key: row[key] for key in ("path", "kind", "duplicate_of") if row.get(key)}
    return card | more


def _probabilities(row: Card, given: int) -> list[float]:
    """The probability of each label. Where only the soft label is known, the given label has its quality, and the
    others share the rest as in the soft label."""
    if row.get("posterior"):
        return [float(value) for value in row["posterior"]]
    soft = [0.0 if value is None or math.isnan(value) else value for value in row["soft_label"]]
    rest = sum(soft) - soft[given]
    shares = [value * (1 - row["label_quality"]) / rest if rest > 0 else 0.0 for value in soft]
    return [*shares[:given], row["label_quality"], *shares[given + 1 :]]


def _rounded(value: float) -> float:
    return round(float(value), 4)


def _view(row: Card) -> Card:
    """A preview as JSON; a picture has its size, so that small ones can be drawn with sharp pixels."""
    kind, content = row["view_kind"], row["view"]
    if kind == "text":
        return {"kind": "text", "text": content.decode(errors="replace")}
    if kind == "values":
        return {"kind": "values", **json.loads(content)}
    with Image.open(BytesIO(content)) as image:
        width, height = image.size
    form = "png" if content.startswith(PNG) else "webp"
    data = f"data:image/{form};base64,{base64.b64encode(content).decode()}"
    return {"kind": "image", "data": data, "width": width, "height": height}


def _shrunk(view: Card, side: int) -> Card:
    if view["kind"] != "image" or max(view["width"], view["height"]) <= side:
        return view
    file = BytesIO()
    with Image.open(BytesIO(base64.b64decode(view["data"].partition(",")[2]))) as image:
        image.thumbnail((side, side))
        image.save(file, "WEBP", quality=70, method=2)
    return _view({"view_kind": "image", "view": file.getvalue()})

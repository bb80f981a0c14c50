"""All that a report tells, as plain values, from the files of a run's folder."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cards import Cards, read_cards
from .labels import LabelCounts, count_labels


@dataclass(frozen=True)
class Gathered:
    """What is known of a run."""

    name: str
    settings: str  # the text of config.toml
    config: dict[str, Any]
    summary: dict[str, Any]
    history: list[dict[str, Any]]  # one entry an epoch
    classes: list[str]
    labels: LabelCounts
    cards: Cards
    fingerprint: str  # of the settings and the suspects: decisions are kept in the browser under it


def gather(folder: Path, *, cards: int) -> Gathered:
    """Read a run that has its labels."""
    if not (folder / "config.toml").exists():
        raise FileNotFoundError(
            f"{folder} is not a run's folder: it has no config.toml; give the folder that mslg fit was told with -o"
        )
    lacking = [name for name in ("summary.json", "classes.json", "labels.parquet") if not (folder / name).exists()]
    if lacking:
        raise FileNotFoundError(f"{folder} has no {lacking[0]} yet; {_why(folder)}")
    settings = (folder / "config.toml").read_bytes()
    classes = [str(name) for name in _json(folder / "classes.json")["classes"]]
    found = read_cards(folder, classes, most=cards)
    digest = hashlib.sha256(settings)
    digest.update("\0".join(found.ids).encode())
    return Gathered(
        name=folder.resolve().name,
        settings=settings.decode(),
        config=tomllib.loads(settings.decode()),
        summary=_json(folder / "summary.json"),
        history=_history(folder / "metrics.jsonl"),
        classes=classes,
        labels=count_labels(folder / "labels.parquet", classes),
        cards=found,
        fingerprint=digest.hexdigest()[:16],
    )


def _why(folder: Path) -> str:
    if (folder / "summary.json").exists() and _json(folder / "summary.json").get("state") == "failed":
        return "its training failed: " + str(_json(folder / "summary.json").get("error"))
    return f"the run is not finished: go on with it by mslg fit -o {folder} --resume"


def _history(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def _json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value

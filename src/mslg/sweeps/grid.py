"""From a recipe to cells: one per row, column and seed, each with its complete settings.

[sweep]           seeds, title, paper (one of the paper's tables), reference (the row that others are compared with),
                  protocol and note (printed with the table)
[data], [noise], [network], [method], [train], [by_noise.…]: shared by all cells, as in any recipe
[columns.NAME]    what a column changes: tables `data`, `noise`, …; `paper` names the column in the paper
[rows.NAME]       what a row changes; `paper` names the row in the paper, `knows` what it knows beyond the protocol
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..noise import NOISES
from ..registry import unknown
from ..runs.recipes import checked, merged, parsed, recipe_text
from ..runs.settings import DEFAULT_METHOD, TABLES, Tables

SWEEP_KEYS = ("seeds", "title", "paper", "reference", "protocol", "note")
AXIS_KEYS = {"columns": ("paper", *TABLES), "rows": ("paper", "knows", "by_noise", *TABLES)}
PLACES = ("root", "output")  # {root} and {output} in a setting are paths, which differ between machines


@dataclass(frozen=True)
class Axis:
    """A row or a column: its name, the settings that it changes, and its counterpart in the paper."""

    name: str
    changes: Tables
    by_noise: dict[str, dict[str, Any]] = field(default_factory=dict)
    paper: str | None = None
    knows: str | None = None


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    row: str
    column: str
    seed: int
    settings: Tables  # {root} and {output} are not filled in

    @property
    def key(self) -> tuple[str, str, int]:
        return self.row, self.column, self.seed

    @property
    def name(self) -> str:
        """The name of the cell's folder."""
        return "--".join(re.sub(r"[^A-Za-z0-9.+=-]+", "-", part).strip("-") for part in (self.row, self.column)) + (
            f"--{self.seed}"
        )

    @property
    def digest(self) -> str:
        """A hash of the settings, without paths. A result counts only as long as the recipe still has the same hash."""
        return hashlib.blake2b(json.dumps(self.settings, sort_keys=True).encode(), digest_size=6).hexdigest()

    def placed(self, **places: str | None) -> Tables:
        """The settings with {root} and {output} filled in."""
        return {
            name: {key: _fill(value, places) for key, value in table.items()} for name, table in self.settings.items()
        }


@dataclass(frozen=True)
class Grid:
    """The recipe of a sweep, parsed."""

    text: str
    title: str
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    seeds: tuple[int, ...]
    paper: str | None
    reference: str | None
    protocol: str | None
    note: str | None
    base: Tables
    by_noise: dict[str, dict[str, Any]]

    def cells(self) -> list[Cell]:
        """All cells, seed by seed, so that there is a complete table as soon as the first seed is finished."""
        return [self.cell(row, column, seed) for seed in self.seeds for column in self.columns for row in self.rows]

    def cell(self, row: Axis, column: Axis, seed: int) -> Cell:
        """The run for a row, a column and a seed."""
        layers = merged(self.base, column.changes, row.changes, {"train": {"seed": seed}})
        data = layers["data"]
        if data.get("noise") is not None and data.get("rate") is not None:
            place = f"{data['noise']}-{round(100 * data['rate'])}"
            if layers["method"].get("name", DEFAULT_METHOD) == self.base["method"].get("name", DEFAULT_METHOD):
                layers["method"] |= self.by_noise.get(place, {})
            # A row's own settings override [by_noise.…], and the row's by_noise overrides both.
            layers["method"] |= row.changes["method"]
            layers["method"] |= row.by_noise.get(place, {})
        return Cell(row.name, column.name, seed, layers)


def load_grid(name: str) -> Grid:
    """Load a sweep's recipe by name, or from a TOML file."""
    text = recipe_text(name)
    tables = parsed(text, name)
    sweep = tables.pop("sweep", None)
    rows, columns = tables.pop("rows", {}), tables.pop("columns", {})
    if sweep is None or not rows or not columns:
        raise ValueError(
            f"{name} is not the recipe of a sweep: it needs the tables [sweep], [rows.…] and [columns.…]; "
            "for a single run use `mslg fit --recipe`"
        )
    for key in sweep:
        if key not in SWEEP_KEYS:
            raise unknown("key in [sweep]", key, SWEEP_KEYS)
    by_noise = _by_noise("by_noise", tables.pop("by_noise", {}))
    seeds = sweep.get("seeds", [0])
    if not isinstance(seeds, list) or not _whole_and_once(seeds):
        raise ValueError(f"seeds = {seeds}; expected distinct integers, such as [0, 1, 2, 3]")
    reference = sweep.get("reference")
    if reference is not None and reference not in rows:
        raise unknown("reference row", reference, rows)
    return Grid(
        text=text,
        title=sweep.get("title") or _first_comment(text) or Path(name).stem,
        rows=tuple(_axis("rows", key, table) for key, table in rows.items()),
        columns=tuple(_axis("columns", key, table) for key, table in columns.items()),
        seeds=tuple(seeds),
        paper=sweep.get("paper"),
        reference=reference,
        protocol=sweep.get("protocol"),
        note=sweep.get("note"),
        base=checked(tables),
        by_noise=by_noise,
    )


def _axis(kind: str, name: str, table: Mapping[str, Any]) -> Axis:
    for key in table:
        if key not in AXIS_KEYS[kind]:
            raise unknown(f"key in [{kind}.{name}]", key, AXIS_KEYS[kind])
    changes = checked({key: value for key, value in table.items() if key in TABLES})
    by_noise = _by_noise(f"rows.{name}.by_noise", table.get("by_noise", {}))
    return Axis(name, changes, by_noise, table.get("paper"), table.get("knows"))


def _by_noise(place: str, tables: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    for key in tables:
        kind, _, percent = key.rpartition("-")
        if kind not in NOISES or not percent.isdigit():
            raise ValueError(
                f"[{place}.{key}]: write a noise and its percentage, such as uniform-60 (mslg list noises)"
            )
    return dict(tables)


def _whole_and_once(seeds: list[Any]) -> bool:
    return bool(seeds) and len(set(seeds)) == len(seeds) and all(type(seed) is int for seed in seeds)


def _first_comment(text: str) -> str:
    line = text.splitlines()[0]
    return line.lstrip("# ") if line.startswith("#") else ""


def _fill(value: Any, places: Mapping[str, str | None]) -> Any:
    if not isinstance(value, str):
        return value
    for name in PLACES:
        if f"{{{name}}}" in value:
            place = places.get(name)
            if place is None:
                raise ValueError(f"the recipe has the path {value}; pass the folder that it stands for with --{name}")
            value = value.replace(f"{{{name}}}", place)
    return value

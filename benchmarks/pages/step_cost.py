"""The tables of what a step costs, which stand between marks in docs/speed.md and README.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .words import NOTHING, table

MARKS = "<!-- step cost: {} -->", "<!-- step cost: end -->"
NETWORKS = {"cnn8": "8-layer CNN", "resnet18": "ResNet-18", "mlp": "MLP on features"}
RUNGS = {
    "plain": "plain step (cross entropy)",
    "exact": "**exact** (default)",
    "compiled": '`mode="compiled"`: exact, by torch\'s compiler',
    "recompute": "exact, `recompute=True`",
    "difference": '`mode="difference"`',
    "no-look-ahead": "exact, `look_ahead=0`",
    "clean-batch-32": "exact, `clean_batch_size=32`",
    "clean-every-4": "exact, `clean_every=4`",
    "head": '`mode="head"`',
    "fast": '**`preset="fast"`**: head, `clean_every=2`',
    "meta-weight-net": "Meta-Weight-Net on the same engine",
    "double-backward": "double backward, as the paper's code does it",
}


def filled(text: str, results: Path) -> str:
    """A page with the tables that its marks ask for: `<!-- step cost: cnn8 resnet18 -->`."""
    measured = json.loads((results / "step_cost.json").read_text())["networks"]
    start, end = (re.escape(mark).replace(r"\{\}", "([a-z0-9 ]+)") for mark in MARKS)

    def block(found: re.Match[str]) -> str:
        names = found[1].split()
        return f"{MARKS[0].format(found[1])}\n\n{cost_table(measured, names)}\n\n{MARKS[1]}"

    return re.sub(f"{start}.*?{end}", block, text, flags=re.DOTALL)


def cost_table(measured: Mapping[str, Any], names: Iterable[str]) -> str:
    """Time and peak memory of every rung in multiples of a plain step."""
    chosen = [name for name in names if name in measured]
    head = ["a step, in plain ones"]
    for name in chosen:
        about = f"{NETWORKS[name]}, batch {measured[name]['batch']}"
        head += [f"time: {about}", "peak memory"]
    lines = []
    for mode, label in RUNGS.items():
        numbers = [measured[name][what].get(mode) for name in chosen for what in ("time", "memory")]
        lines.append([label, *(NOTHING if value is None else f"{value:.2f}" for value in numbers)])
    return table(head, lines)

"""Results of runs that were launched on their own, by `mslg fit`, into the folders where a sweep looks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .grid import PLACES, Cell
from .ledger import Finished, finished


def collected(folder: Path, cell: Cell) -> Finished | None:
    """What a folder holds of this cell's finished run, if it does; no data is read and nothing is trained."""
    if not (folder / "config.toml").exists() or not (folder / "summary.json").exists():
        return None
    from ..runs.folder import Run  # which needs torch, as a table of finished cells does not

    run = Run.open(folder)
    summary = run.read_json("summary.json")
    if not run.finished and summary["state"] != "failed":
        return None
    for table, key, then, now in differences(run.config, cell):
        raise ValueError(
            f"{folder} was run with {table}.{key} = {then!r}, the sweep says {now!r}; "
            "delete that folder, or change the recipe"
        )
    seconds = sum(line.get("train", 0) + line.get("evaluation", 0) for line in run.history("timing"))
    failed = summary["state"] == "failed"
    found = finished(cell, summary, [] if failed else run.history(), seconds)
    # Made by the program that ran it, wherever that was; not by this one.
    return replace(found, commit="", versions=dict(run.config.get("versions", {})))


def differences(config: Mapping[str, Any], cell: Cell) -> Iterator[tuple[str, str, Any, Any]]:
    """Settings of the cell that a run's config contradicts: table, key, the run's value, the cell's."""
    from ..data.augmentation import Augment

    for table, settings in cell.settings.items():
        for key, value in settings.items():
            if isinstance(value, str) and any(f"{{{place}}}" in value for place in PLACES):
                continue  # places differ between machines
            then = config.get(table, {}).get(key)
            if (table, key) == ("train", "augment"):
                if "features" in cell.settings["data"]:
                    continue  # done once, when the features were made
                value = Augment.parse(value).words
            if then is None and isinstance(value, list | dict):
                continue  # a run writes down plain values only
            if then != value:
                yield table, key, then, value

"""Results of cells that were launched separately, with `mslg fit`, in the run folders of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .grid import PLACES, Cell
from .ledger import Finished, finished


def collected(folder: Path, cell: Cell) -> Finished | None:
    """The result of this cell if the folder holds its finished run, else None. Reads no data and trains nothing."""
    if not (folder / "config.toml").exists() or not (folder / "summary.json").exists():
        return None
    from ..runs.folder import Run  # imports torch, which a table of finished cells does not need

    run = Run.open(folder)
    summary = run.read_json("summary.json")
    if not run.finished and summary["state"] != "failed":
        return None
    for table, key, then, now in differences(run.config, cell):
        raise ValueError(
            f"{folder} was run with {table}.{key} = {then!r}, but the sweep has {now!r}; "
            "delete the folder, or change the recipe"
        )
    seconds = sum(line.get("train", 0) + line.get("evaluation", 0) for line in run.history("timing"))
    failed = summary["state"] == "failed"
    found = finished(cell, summary, [] if failed else run.history(), seconds)
    # The versions are those of the program that ran it, which may not be this one.
    return replace(found, commit="", versions=dict(run.config.get("versions", {})))


def differences(config: Mapping[str, Any], cell: Cell) -> Iterator[tuple[str, str, Any, Any]]:
    """Settings in which a run's config differs from the cell: table, key, value in the run, value in the cell."""
    from ..data.augmentation import Augment

    for table, settings in cell.settings.items():
        for key, value in settings.items():
            if isinstance(value, str) and any(f"{{{place}}}" in value for place in PLACES):
                continue  # paths differ between machines
            then = config.get(table, {}).get(key)
            if (table, key) == ("train", "augment"):
                if "features" in cell.settings["data"]:
                    continue  # applied once, when the features were extracted
                value = Augment.parse(value).words
            if then is None and isinstance(value, list | dict):
                continue  # the config has plain values only
            if then != value:
                yield table, key, then, value

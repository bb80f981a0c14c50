"""The commands that follow a check or a review, for the page to show."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

READING = ("root", "label_column", "text_column", "path_column", "id_column")  # settings that say how data is read


def reading_options(settings: Mapping[str, Any]) -> list[str]:
    """The options of the command line that say how the data is read."""
    given = {key: settings[key] for key in READING if settings.get(key) is not None}
    return [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", str(value))]


def fit_command(source: str, options: Sequence[str], clean: Path | str, output: str = "runs/first") -> str:
    """Train with the decisions of a random check as clean samples."""
    return shlex.join(["mslg", "fit", source, *options, "--clean", str(clean), "-o", output])


def after_start(source: str, options: Sequence[str], decisions: Path) -> dict[str, str]:
    """What follows the check before any run. A page without a server saves its decisions as audit.csv."""
    return {
        "checked": fit_command(source, options, decisions),
        "checked_offline": fit_command(source, options, "audit.csv"),
    }


def after_run(folder: Path, config: Mapping[str, Any], *, pictures: bool) -> dict[str, str]:
    """What follows the review of a run, and a random check in it."""
    data = config.get("data", {})
    form = ["-o", "cleaned", "--to", "imagefolder"] if pictures else ["-o", "cleaned.parquet"]
    found = {
        "reviewed": shlex.join(["mslg", "apply", str(folder), str(folder / "review.csv"), *form]),
        "reviewed_offline": shlex.join(["mslg", "apply", str(folder), "decisions.csv", *form]),
    }
    if isinstance(data.get("source"), str) and "issues" not in config:
        options = reading_options(data)
        found["checked"] = fit_command(data["source"], options, folder / "audit.csv", "runs/second")
        found["checked_offline"] = fit_command(data["source"], options, "audit.csv", "runs/second")
    return found

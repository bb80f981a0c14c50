"""Whether a run's folder has its results. Needs no torch, so that a report does not wait for it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path


def require_finished(folder: Path, *results: str) -> None:
    """Raise an error unless the run is finished or, if files are named, has at least these results."""
    if not (folder / "config.toml").exists():
        raise FileNotFoundError(f"{folder} is not a run's folder: it has no config.toml; start a run with `mslg fit`")
    missing = [name for name in results or ("done",) if not (folder / name).exists()]
    if not missing:
        return
    if (folder / "done").exists() and is_of_issues(folder):
        raise ValueError(
            f"{folder} has no {missing[0]}: it was made by `mslg issues`, which trains no model; train one on the "
            "same data with `mslg fit`"
        )
    summary = json.loads((folder / "summary.json").read_text()) if (folder / "summary.json").exists() else {}
    if summary.get("state") == "failed":
        raise ValueError(f"{folder} has no {missing[0]}: its training failed: {summary.get('error')}")
    raise ValueError(f"{folder} is not finished (it has no {missing[0]}); finish it: mslg fit -o {folder} --resume")


def is_of_issues(folder: Path) -> bool:
    """Whether a run was made from another model's probabilities and has no model of its own."""
    return "issues" in tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))

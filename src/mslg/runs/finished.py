"""Whether a run's folder has its results, and its small files. Needs no torch: a report does not wait for it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..runtime import checksums
from ..runtime.files import regular

FORMAT = 1  # of the files of a run


def require_finished(folder: Path, *results: str) -> None:
    """Raise an error unless the run is finished or, if files are named, has at least these results."""
    if not (folder / "config.toml").exists():
        raise FileNotFoundError(f"{folder} is not a run's folder: it has no config.toml; start a run with `mslg fit`")
    missing = [name for name in results or ("done",) if not (folder / name).exists()]
    if not missing:
        return
    for name in missing:
        checksums.check(folder, name)  # says so if it was there once
    if (folder / "done").exists() and is_of_issues(folder):
        raise ValueError(
            f"{folder} has no {missing[0]}: it was made by `mslg issues`, which trains no model; train one on the "
            "same data with `mslg fit`"
        )
    summary = read_json(folder / "summary.json") if (folder / "summary.json").exists() else {}
    if summary.get("state") == "failed":
        raise ValueError(f"{folder} has no {missing[0]}: its training failed: {summary.get('error')}")
    raise ValueError(f"{folder} is not finished (it has no {missing[0]}); finish it: mslg fit -o {folder} --resume")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of a run, an export or a sweep: an object of a format that this version knows."""
    try:
        value = json.loads(regular(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}; the folder is not complete") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is not JSON ({_short(error)})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: it holds a {type(value).__name__}, not an object")
    refuse_newer(path, value.get("format_version", FORMAT))
    return value


def read_config(folder: Path) -> dict[str, Any]:
    """The settings of a run, as it has written them."""
    path = folder / "config.toml"
    checksums.check(folder, path.name)
    try:
        config = tomllib.loads(regular(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is not TOML ({_short(error)})") from error
    refuse_newer(path, config.get("format_version", FORMAT))
    return config


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Inside, files of the folder are put together. If they do not fit, and are not all known to be as they were
    written, that is an error about the folder; otherwise it is a fault of this package."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, AssertionError, NotImplementedError) as error:
        sums = checksums.recorded(folder)
        if sums and all(checksums.is_right(folder, name, sums) for name in sums):
            raise
        raise ValueError(
            f"the files in {folder} do not fit together ({type(error).__name__}: {_short(error)}): they were changed, "
            "or are not of one run"
        ) from error


def refuse_newer(path: Path, version: object) -> None:
    """Raise for a file of a format that only a later version of mslg knows."""
    if not isinstance(version, int) or isinstance(version, bool) or version > FORMAT or version < 1:
        raise ValueError(
            f"{path} has format version {version!r}, this version of mslg reads up to {FORMAT}; upgrade mslg to read it"
        )


def _short(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())[:200]


def is_of_issues(folder: Path) -> bool:
    """Whether a run was made from another model's probabilities and has no model of its own."""
    return "issues" in read_config(folder)

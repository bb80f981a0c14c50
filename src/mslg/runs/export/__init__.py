"""A trained model and its labels as files for other programs."""

from __future__ import annotations

from pathlib import Path


def refuse_existing(path: Path, force: bool) -> None:
    """Refuse to overwrite without `force`, and to replace a folder by a file."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    if path.exists() and not force:
        raise FileExistsError(f"{path} already exists; choose another name, or replace it with --force (force=True)")
    path.parent.mkdir(parents=True, exist_ok=True)

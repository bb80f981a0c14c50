"""A folder to share: weights, how to build the network, class names, and the model card as README."""

from __future__ import annotations

import shutil
from pathlib import Path

from ...runtime import checksums
from ...runtime.files import replacing_folder
from ..folder import Run
from ..model_card import card

FILES = ("model.safetensors", "model.json", "classes.json")
VOCABULARY = "vocabulary.json"  # of a run on texts
CARD = "README.md"


def write(run: Run, path: Path, *, force: bool = False) -> None:
    """Read it with `mslg.load_model(folder)`."""
    _check_place(path, force)
    text = card(run)
    names = [*FILES, *([VOCABULARY] if (run.path / VOCABULARY).exists() else [])]
    checksums.check(run.path, *names)
    with replacing_folder(path) as temporary:
        for name in names:
            shutil.copyfile(run.path / name, temporary / name)
        (temporary / CARD).write_text(text, encoding="utf-8")
        checksums.record(temporary, [*names, CARD])


def _check_place(path: Path, force: bool) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise FileExistsError(f"{path} is a file; name a folder")
    there = {entry.name for entry in path.iterdir()}
    if there and not force:
        raise FileExistsError(f"{path} is not empty; choose another folder, or replace it with --force (force=True)")
    if others := sorted(there - {*FILES, VOCABULARY, CARD, checksums.NAME}):
        raise FileExistsError(f"{path} also contains other files, such as {others[0]}, and will not be deleted")

"""The folder for the hub. Nothing is uploaded: `hf upload` is the user's command."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ...runs.export.hugging_face import write_model
from ...runs.export.safetensors import CARD
from ...runs.folder import Run
from ...runtime.files import replacing_folder
from ..cleaned.write import folders_of_data
from .card import dataset_card
from .dataset import write_dataset

log = logging.getLogger("mslg")

MODEL, DATASET = "model", "dataset"


def write(
    run: Run,
    path: Path,
    *,
    force: bool = False,
    decisions: Path | str | None = None,
    suggested: bool = False,
    link: bool = False,
    data: Path | str | None = None,
    noisy: Any = None,
) -> None:
    """Write `model/` and `dataset/`. Labels are those of `mslg apply`; image files are copied, with `link` linked."""
    _check_place(path, force)
    with replacing_folder(path) as temporary:
        write_model(run, temporary / MODEL)
        written = write_dataset(
            run,
            temporary / DATASET,
            target=path,
            noisy=noisy,
            decisions=decisions,
            suggested=suggested,
            link=link,
            within=folders_of_data(run, data),
        )
        (temporary / DATASET / CARD).write_text(dataset_card(run, written), encoding="utf-8")
    counts = written.counts
    log.info("%d samples, %d not under the given label; %d removed", counts.samples, counts.changed, counts.removed)


def _check_place(path: Path, force: bool) -> None:
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file; name a folder")
    there = {entry.name for entry in path.iterdir()} if path.exists() else set()
    if others := sorted(there - {MODEL, DATASET}):
        raise FileExistsError(f"{path} also contains other files, such as {others[0]}, and will not be deleted")
    if there and not force:
        raise FileExistsError(f"{path} is not empty; choose another folder, or replace it with --force (force=True)")

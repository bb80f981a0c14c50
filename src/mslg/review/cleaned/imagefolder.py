"""The data as an image folder: a folder for each class, each file under the best label there is for it."""

from __future__ import annotations

import logging
from pathlib import Path

from ...runs.folder import Run
from . import cleaned
from . import write as write_samples
from .samples import has_paths

log = logging.getLogger("mslg")


def write(
    run: Run, path: Path, *, force: bool = False, decisions: Path | str | None = None, link: bool = False
) -> None:
    """Decided and verified labels first, else suggested ones; removed samples are left out. Copies, or with `link`
    hard links, which become symbolic ones to another file system."""
    pieces, counts = cleaned(run, None if decisions is None else Path(decisions), accept_rest=True)
    classes = run.read_json("classes.json")["classes"]
    renamed = write_samples(path, pieces, "imagefolder", classes=classes, files=has_paths(run), link=link, force=force)
    log.info("%d files, %d under another label than given; %d removed", counts.samples, counts.changed, counts.removed)
    for name, folder in renamed.items():
        log.info("class '%s' is in the folder '%s'", name, folder)

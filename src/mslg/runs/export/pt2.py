"""The model as a torch.export archive: `torch.export.load("model.pt2").module()` runs it without its code."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from ...runtime.files import write_atomically
from ..folder import Run
from . import refuse_existing
from .graph import check, quiet, trace


def write(run: Run, path: Path, *, force: bool = False, network: Any = None, prepare: Any = None) -> None:
    """Trace, save, load, compare, and only then write. The metadata are extra files of the archive."""
    refuse_existing(path, force)
    graph = trace(run, network, prepare)
    content = BytesIO()
    with quiet():
        torch.export.save(graph.program, content, extra_files=graph.about)
        content.seek(0)
        loaded = torch.export.load(content).module()
    check(graph, loaded)
    write_atomically(path, content.getvalue())

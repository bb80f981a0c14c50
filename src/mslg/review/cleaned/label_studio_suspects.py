"""Flagged samples as Label Studio tasks, each with the suggested label as a prediction to confirm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...runs.folder import Run
from . import cleaned
from . import write as write_samples
from .samples import Sample, has_paths


def write(
    run: Run,
    path: Path,
    *,
    force: bool = False,
    all: bool = False,
    decisions: Path | str | None = None,
    document_root: Path | str = "/",
) -> None:
    """A list of tasks, and beside it the labelling interface as XML. With `all` every training sample is a task;
    decided ones have their label as an annotation."""
    pieces, _ = cleaned(run, None if decisions is None else Path(decisions))
    classes = run.read_json("classes.json")["classes"]
    place = Path(document_root)
    kept = _asked(pieces, all)
    write_samples(path, kept, "label-studio", classes=classes, files=has_paths(run), document_root=place, force=force)


def _asked(pieces: Iterator[list[Sample]], all_: bool) -> Iterator[list[Sample]]:
    """Clean samples have no suggested label: there is nothing to ask about them."""
    for piece in pieces:
        yield [
            sample
            for sample in piece
            if sample.suggested_label is not None and (all_ or sample.suggested_label != sample.given_label)
        ]

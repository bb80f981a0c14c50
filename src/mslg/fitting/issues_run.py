"""Label issues found from a model's probabilities as a run's folder, which the report and the review read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.sample_table import pieces_of
from ..data.samples import Samples
from ..data.source import Source
from ..data.stores import Located
from ..issues import labels_file
from ..issues.label_rows import label_tables
from ..issues.labels_file import write_labels
from ..issues.questions import NAME as QUESTIONS
from ..issues.ranked_list import LabelIssues
from ..issues.suspects import labels_to_show, nearest_rows, write_suspect_files
from ..review import division_file
from ..runs.folder import Run


class Found(NamedTuple):
    """What the folder is written from; see `Issues`."""

    summary: dict[str, Any]
    warnings: list[str]
    ranked: LabelIssues
    positions: Tensor  # of the ranked samples in the source
    source: Source
    verified: Tensor
    features: Any
    settings: dict[str, Any]
    questions: pd.DataFrame | None = None  # whom to ask about which sample, where there are annotators


def write_run(issues: Found, folder: Path, *, force: bool = False) -> Run:
    """Write the folder; it has no model."""
    source, config = issues.source, issues.settings
    data = {"source": config["source"], "samples": len(source)}
    found = {key: value for key, value in config.items() if key != "source" and value is not None}
    division = division_file.write_division(_division(issues))
    run = Run.create(
        folder,
        {"data": {key: value for key, value in data.items() if value is not None}, "issues": found},
        files={division_file.NAME: division},
        force=force,
    )
    run.write_json("classes.json", {"classes": list(issues.source.classes)})
    with run.writing(labels_file.NAME):
        write_labels(run.path, label_tables(issues.ranked))
    checked = (issues.verified >= 0).nonzero().flatten()
    clean = Samples(source.store, checked, issues.verified[checked], source.label[checked], source)
    shown = labels_to_show(issues.ranked, seed=0)
    index = issues.positions[shown]
    nearest = _nearest(issues, index, checked)
    with run.writing("suspects.parquet", "audit.parquet", "clean_samples.parquet"):
        write_suspect_files(run.path, issues.ranked, source, shown, index, clean, nearest)
    if issues.questions is not None:
        run.write_json(QUESTIONS, {"questions": issues.questions.to_dict(orient="records")})
    run.write_json("summary.json", {**issues.summary, "warnings": issues.warnings})
    run.finish()
    return run


def _nearest(issues: Found, shown: Tensor, checked: Tensor) -> list[list[int]]:
    """The verified samples with the most similar features, where there are features."""
    if issues.features is None or not len(checked):
        return [[] for _ in range(len(shown))]
    rows = torch.cat(list(_directions(issues.features, shown)))
    return nearest_rows(rows, _directions(issues.features, checked))


def _directions(features: Any, positions: Tensor) -> Iterator[Tensor]:
    """Features of length 1, piece by piece."""
    width = int(np.prod(np.shape(features)[1:]))
    for piece in pieces_of(positions, max(1, width)):
        rows = torch.as_tensor(np.asarray(features[piece.numpy()], dtype=np.float32))
        yield F.normalize(rows.flatten(1), dim=1)


def _division(issues: Found) -> pa.Table:
    """The verified samples as rows of division.parquet."""
    source = issues.source
    checked = (issues.verified >= 0).nonzero().flatten()
    columns = {
        "id": pa.array(source.ids_at(checked), pa.string()),
        "label": pa.array([issues.source.classes[number] for number in issues.verified[checked].tolist()], pa.string()),
        "given_label": pa.array(
            [issues.source.classes[number] for number in source.label[checked].tolist()], pa.string()
        ),
        "part": pa.array(["verified"] * len(checked), pa.string()),
        "in_data": pa.array([True] * len(checked)),
    }
    if isinstance(source.store, Located):
        columns["path"] = pa.array([str(source.store.path(place)) for place in checked.tolist()], pa.string())
    return pa.table(columns)

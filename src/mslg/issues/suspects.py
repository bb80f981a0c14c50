"""suspects.parquet, audit.parquet and clean_samples.parquet: the worst labels, and some at random, with all that a
person needs to review them, namely previews, predictions by epoch, and the most similar clean samples."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.batch import call
from ..data.samples import Samples
from ..data.splits import Splits
from ..networks.head import recorded_inputs
from ..runtime.files import write_atomically
from ..runtime.seeds import generator
from ..training.method import Method
from ..training.prediction_history import PredictionHistory
from .label_rows import label_table
from .previews import preview_of
from .ranked_list import LabelIssues

log = logging.getLogger("mslg")

FORMAT = 1
MOST = 1_000  # suspects that are kept
AUDIT = 100  # samples drawn at random, to learn how many labels are wrong
NEAREST = 4  # clean samples beside each
SIDE, CLEAN_SIDE = 224, 64  # pixels of their pictures
CLEAN = pa.schema(
    [("id", pa.string()), ("verified_label", pa.string()), ("view_kind", pa.string()), ("view", pa.binary())]
)


def write_suspects(folder: Path, issues: LabelIssues, method: Method, data: Splits, history: PredictionHistory) -> None:
    """Write the files. Samples without a prediction are no suspects."""
    worst = issues.order[: min(MOST, issues.ranked)].long()
    drawn = issues.order[random_positions(issues.ranked, data.seed)].long()
    index = data.train.index[torch.cat([worst, drawn])]
    clean = data.clean  # not the samples that a method uses instead of clean ones: nobody has verified those
    nearest = _nearest(method, data, data.train.at(torch.cat([worst, drawn])), clean)
    names = _names(clean, sorted({place for row in nearest for place in row}))
    given, predicted = history.history(index)
    previews = [preview_of(data.source, position, side=SIDE) for position in index.tolist()]
    columns = {
        "view_kind": pa.array([preview.kind for preview in previews], pa.string()),
        "view": pa.array([preview.content for preview in previews], pa.binary()),
        "history_epochs": pa.array([list(history.epochs)] * len(index), pa.list_(pa.int32())),
        "history_given": pa.array(given.float().tolist(), pa.list_(pa.float32())),
        "history_predicted": pa.array(predicted.int().tolist(), pa.list_(pa.int32())),
        "nearest": pa.array([[names[place] for place in row] for row in nearest], pa.list_(pa.string())),
    }
    for name, positions, start in (("suspects", worst, 0), ("audit", drawn, len(worst))):
        rows = label_table(issues, positions)
        for title, column in columns.items():
            rows = rows.append_column(title, column.slice(start, len(positions)))
        _write(folder / f"{name}.parquet", rows)
    _write(folder / "clean_samples.parquet", _clean_table(clean, names, data.source.classes))


def random_positions(samples: int, seed: int) -> Tensor:
    """Positions of samples to check at random: enough for a rate with an interval of about ±10 points."""
    return torch.randperm(samples, generator=generator(seed, "audit"))[:AUDIT]


def _nearest(method: Method, data: Splits, suspects: Samples, clean: Samples | None) -> list[list[int]]:
    """For each suspect the positions of the clean samples with the most similar features, nearest first."""
    nothing: list[list[int]] = [[] for _ in range(len(suspects))]
    if clean is None or not len(clean) or not len(suspects):
        return nothing
    try:
        rows = torch.cat(list(_features(method, data, suspects)))
        best = torch.empty((len(rows), 0))
        place = torch.empty((len(rows), 0), dtype=torch.int64)
        done = 0
        for others in _features(method, data, clean):  # only the best are kept: there may be very many clean samples
            here = torch.arange(done, done + len(others)).expand(len(rows), -1)
            best, place = torch.cat([best, rows @ others.t()], 1), torch.cat([place, here], 1)
            best, order = best.topk(min(NEAREST, best.shape[1]), dim=1)
            place, done = place.gather(1, order), done + len(others)
    except Exception as error:  # the run is over: a file that has disappeared since must not spoil it
        log.warning("the clean samples most similar to each suspect were not found: %s", error)
        return nothing
    nearest: list[list[int]] = place.tolist()
    return nearest


@torch.inference_mode()
def _features(method: Method, data: Splits, samples: Samples) -> Iterator[Tensor]:
    """The inputs of the deployed network's head, normalised, one batch at a time."""
    network = method.deployed()
    with recorded_inputs(method.task.head(network)) as features:
        for batch in data.in_order(samples):
            call(network, batch.inputs)
            yield F.normalize(features[0].flatten(1).float().cpu(), dim=1)


def _names(clean: Samples | None, places: list[int]) -> dict[int, str]:
    """Ids of the clean samples at these positions. Ids that are only positions may belong to two samples, one of the
    clean set and one that was reviewed: the second gets a number."""
    names: dict[int, str] = {}
    if clean is None or not places:
        return names
    assert clean.origin is not None
    times: Counter[str] = Counter()
    for place, position in zip(places, clean.index[places].tolist(), strict=True):
        name = clean.origin.ids[position]
        times[name] += 1
        names[place] = name if times[name] == 1 else f"{name} ({times[name]})"
    return names


def _clean_table(clean: Samples | None, names: dict[int, str], classes: tuple[str, ...]) -> pa.Table:
    rows = []
    for place, name in names.items():
        assert clean is not None
        assert clean.origin is not None
        preview = preview_of(clean.origin, int(clean.index[place]), side=CLEAN_SIDE)
        label = classes[int(clean.label[place])]
        rows.append({"id": name, "verified_label": label, "view_kind": preview.kind, "view": preview.content})
    return pa.Table.from_pylist(rows, CLEAN)


def _write(path: Path, table: pa.Table) -> None:
    metadata = {**(table.schema.metadata or {}), b"format_version": str(FORMAT).encode()}
    file = BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), file)
    write_atomically(path, file.getvalue())

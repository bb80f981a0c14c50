"""The samples whose labels are trusted least, with all that a person needs to judge them: what they look like, what the
network thought of them as it learned, and the clean samples that are most like them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.batch import call
from ..data.samples import Samples
from ..data.source import Source
from ..data.splits import Splits
from ..networks.head import recorded_inputs
from ..runtime.files import write_atomically
from ..training.method import Method
from ..training.prediction_history import PredictionHistory
from .previews import view_of

log = logging.getLogger("mslg")

FORMAT = 1
MOST = 1_000  # suspects that are kept
NEAREST = 4  # clean samples beside each
SIDE, CLEAN_SIDE = 224, 64  # pixels of their pictures
CLEAN = pa.schema(
    [("id", pa.string()), ("verified_label", pa.string()), ("view_kind", pa.string()), ("view", pa.binary())]
)


def write_suspects(folder: Path, source: Source, data: Splits, method: Method, history: PredictionHistory) -> None:
    """Write `suspects.parquet` and `clean_samples.parquet` into a run's folder that has its `labels.parquet`."""
    rows, places = _worst(folder / "labels.parquet")
    index = data.train.index[places]
    clean = data.clean  # not samples that a method lets stand in for it: nobody has verified those
    nearest = _nearest(method, data, data.train.at(places), clean)
    names = _names(clean, sorted({place for row in nearest for place in row}))
    given, predicted = history.history(index)
    views = [view_of(source, position, side=SIDE) for position in index.tolist()]
    columns = {
        "view_kind": pa.array([view.kind for view in views], pa.string()),
        "view": pa.array([view.content for view in views], pa.binary()),
        "history_epochs": pa.array([list(history.epochs)] * len(index), pa.list_(pa.int32())),
        "history_given": pa.array(given.float().tolist(), pa.list_(pa.float32())),
        "history_predicted": pa.array(predicted.int().tolist(), pa.list_(pa.int32())),
        "nearest": pa.array(
            [[names[place] for place in row if place in names] for row in nearest], pa.list_(pa.string())
        ),
    }
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    _write(folder / "suspects.parquet", rows)
    _write(folder / "clean_samples.parquet", pa.Table.from_pylist(_clean_rows(clean, names, source.classes), CLEAN))


def _worst(path: Path) -> tuple[pa.Table, Tensor]:
    """The rows of the worst labels, worst first, and their places in the table. Read piece by piece: the table may be
    larger than memory. Samples that were never trained on have no quality and are no suspects."""
    file = pq.ParquetFile(path)
    found, places, done = [], [], 0
    for group in range(file.num_row_groups):
        about = file.read_row_group(group, columns=["rank", "label_quality"])
        quality = about["label_quality"].to_numpy()
        chosen = np.flatnonzero((about["rank"].to_numpy() < MOST) & ~np.isnan(quality.astype(float)))
        if len(chosen):
            found.append(file.read_row_group(group).take(pa.array(chosen)))
            places.append(chosen + done)
        done += len(about)
    if not found:
        return file.schema_arrow.empty_table(), torch.empty(0, dtype=torch.int64)
    rows = pa.concat_tables(found)
    order = np.argsort(rows["rank"].to_numpy())
    return rows.take(pa.array(order)), torch.from_numpy(np.concatenate(places)[order])


def _nearest(method: Method, data: Splits, suspects: Samples, clean: Samples | None) -> list[list[int]]:
    """For each suspect the places of the clean samples with the most similar features, nearest first."""
    if clean is None or not len(clean) or not len(suspects):
        return [[] for _ in range(len(suspects))]
    try:
        rows = torch.cat(list(_features(method, data, suspects)))
        best = torch.full((len(rows), 0), 0.0)
        place = torch.empty((len(rows), 0), dtype=torch.int64)
        done = 0
        for others in _features(method, data, clean):  # as many clean samples as there are: only the best are kept
            here = torch.arange(done, done + len(others)).expand(len(rows), -1)
            best, place = torch.cat([best, rows @ others.t()], 1), torch.cat([place, here], 1)
            best, order = best.topk(min(NEAREST, best.shape[1]), dim=1)
            place, done = place.gather(1, order), done + len(others)
    except Exception as error:  # the run is over: a file that has gone since must not undo it
        log.warning("the clean samples most like each suspect were not found: %s", error)
        return [[] for _ in range(len(suspects))]
    nearest: list[list[int]] = place.tolist()
    return nearest


@torch.inference_mode()
def _features(method: Method, data: Splits, samples: Samples) -> Iterator[Tensor]:
    """What goes into the head of the deployed network, each row of length 1, a batch at a time."""
    network = method.deployed()
    with recorded_inputs(method.task.head(network)) as features:
        for batch in data.in_order(samples):
            call(network, batch.inputs)
            yield F.normalize(features[0].flatten(1).float().cpu(), dim=1)


def _names(clean: Samples | None, places: list[int]) -> dict[int, str]:
    """What the clean samples at these places are called. Ids that are only positions may be those of two samples, one
    of the clean set and one that was reviewed: the later one is called by its number too."""
    names: dict[int, str] = {}
    if clean is None or clean.origin is None:
        return names
    times: Counter[str] = Counter()
    for place, position in zip(places, clean.index[places].tolist()):
        name = clean.origin.ids[position]
        times[name] += 1
        names[place] = name if times[name] == 1 else f"{name} ({times[name]})"
    return names


def _clean_rows(clean: Samples | None, names: dict[int, str], classes: tuple[str, ...]) -> list[dict[str, Any]]:
    if clean is None or clean.origin is None:
        return []
    rows = []
    for place, name in names.items():
        view = view_of(clean.origin, int(clean.index[place]), side=CLEAN_SIDE)
        label = classes[int(clean.label[place])]
        rows.append({"id": name, "verified_label": label, "view_kind": view.kind, "view": view.content})
    return rows


def _write(path: Path, table: pa.Table) -> None:
    metadata = {**(table.schema.metadata or {}), b"format_version": str(FORMAT).encode()}
    file = BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), file)
    write_atomically(path, file.getvalue())

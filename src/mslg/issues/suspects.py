"""suspects.parquet, audit.parquet and clean_samples.parquet: the worst labels, and some at random, with all that a
person needs to review them, namely previews, predictions by epoch, and the most similar clean samples."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path

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
from ..runtime.seeds import generator
from ..training.method import Method
from ..training.prediction_history import PredictionHistory
from .label_rows import label_table, lists
from .previews import previews_of
from .ranked_list import LabelIssues

log = logging.getLogger("mslg")

FORMAT = 1
MOST = 1_000  # suspects that are kept
AUDIT = 100  # samples drawn at random, to learn how many labels are wrong
MOST_OTHERS = 300  # of them that were not among the worst labels
OTHER_KINDS = ["near duplicate", "no class"]
NEAREST = 4  # clean samples beside each
SIDE, CLEAN_SIDE = 224, 64  # pixels of their pictures
HISTORY = {
    "history_epochs": pa.list_(pa.int32()),
    "history_given": pa.list_(pa.float32()),
    "history_predicted": pa.list_(pa.int32()),
}
CLEAN = pa.schema(
    [("id", pa.string()), ("verified_label", pa.string()), ("view_kind", pa.string()), ("view", pa.binary())]
)


def write_suspects(folder: Path, issues: LabelIssues, method: Method, data: Splits, history: PredictionHistory) -> None:
    """Write the files for a method that was trained."""
    positions = labels_to_show(issues, data.seed)
    index = data.train.index[positions]
    clean = data.clean  # not the samples that a method uses instead of clean ones: nobody has verified those
    given, predicted = history.history(index)
    columns = {
        "history_epochs": lists(torch.tensor(history.epochs, dtype=torch.int32).expand(len(index), -1)),
        "history_given": lists(given.float()),
        "history_predicted": lists(predicted.int()),
    }
    nearest = _nearest(method, data, data.train.at(positions), clean)
    write_suspect_files(folder, issues, data.source, positions, index, clean, nearest, columns)


def worst_labels(issues: LabelIssues) -> Tensor:
    """Positions of the suspects among the ranked samples: the worst labels and, among the others, problems of another
    kind. Samples without a prediction are none."""
    order = issues.order[: issues.ranked].long()
    kind = issues.kinds.get("kind")
    if kind is None or len(order) <= MOST:
        return order[:MOST]
    further = order[MOST:]
    further = further[torch.from_numpy(np.isin(kind[further.numpy()], OTHER_KINDS))][:MOST_OTHERS]
    return torch.cat([order[: MOST - len(further)], further])


def labels_to_show(issues: LabelIssues, seed: int) -> Tensor:
    """Positions among the ranked samples: of the suspects, then of some that are drawn at random from all."""
    return torch.cat([worst_labels(issues), issues.order[random_positions(issues.ranked, seed)].long()])


def write_suspect_files(
    folder: Path,
    issues: LabelIssues,
    source: Source,
    positions: Tensor,
    index: Tensor,
    clean: Samples | None,
    nearest: list[list[int]],
    history: Mapping[str, pa.Array] | None = None,
) -> None:
    """Write the files.

    Args:
        folder: of the run.
        issues: the ranked labels.
        source: the samples.
        positions: `labels_to_show(issues, seed)`.
        index: where they are in the source.
        clean: the clean samples.
        nearest: for each of them the positions of the clean samples most similar to it.
        history: further columns: what a method predicted epoch by epoch.
    """
    names = _names(clean, sorted({place for row in nearest for place in row}))
    previews = previews_of(source, index.tolist(), side=SIDE)
    columns = {
        "view_kind": pa.array([preview.kind for preview in previews], pa.string()),
        "view": pa.array([preview.content for preview in previews], pa.binary()),
        "posterior": lists(issues.posterior_of(positions)),
        **(history or {name: pa.array([[]] * len(index), kind) for name, kind in HISTORY.items()}),
        "nearest": _lists_of_names(nearest, names),
    }
    start = 0
    for name, part in (("suspects", worst_labels(issues)), ("audit", positions[len(worst_labels(issues)) :])):
        rows = label_table(issues, part)
        for title, column in columns.items():
            rows = rows.append_column(title, column.slice(start, len(part)))
        _write(folder / f"{name}.parquet", rows)
        start += len(part)
    _write(folder / "clean_samples.parquet", _clean_table(clean, names, source.classes))


def _lists_of_names(nearest: list[list[int]], names: dict[int, str]) -> pa.ListArray:
    ends = np.cumsum([0, *map(len, nearest)], dtype=np.int32)
    return pa.ListArray.from_arrays(ends, pa.array([names[place] for row in nearest for place in row], pa.string()))


def random_positions(samples: int, seed: int) -> Tensor:
    """Positions of samples to check at random: enough for a rate with an interval of about ±10 points."""
    return torch.randperm(samples, generator=generator(seed, "audit"))[:AUDIT]


def _nearest(method: Method, data: Splits, suspects: Samples, clean: Samples | None) -> list[list[int]]:
    """For each suspect the positions of the clean samples with the most similar features, nearest first."""
    if clean is None or not len(clean) or not len(suspects):
        return [[] for _ in range(len(suspects))]
    try:
        return nearest_rows(torch.cat(list(_features(method, data, suspects))), _features(method, data, clean))
    except Exception as error:  # the run is over: a file that has disappeared since must not spoil it
        log.warning("the clean samples most similar to each suspect were not found: %s", error)
        return [[] for _ in range(len(suspects))]


def nearest_rows(rows: Tensor, others: Iterable[Tensor]) -> list[list[int]]:
    """For each of the rows the positions of the others with the highest dot product, highest first."""
    best = torch.empty((len(rows), 0))
    place = torch.empty((len(rows), 0), dtype=torch.int64)
    done = 0
    for some in others:  # only the best are kept: there may be very many clean samples
        here = torch.arange(done, done + len(some)).expand(len(rows), -1)
        best, place = torch.cat([best, rows @ some.t()], 1), torch.cat([place, here], 1)
        best, order = best.topk(min(NEAREST, best.shape[1]), dim=1)
        place, done = place.gather(1, order), done + len(some)
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
    if clean is None or not names:
        return pa.Table.from_pylist([], CLEAN)
    assert clean.origin is not None
    places = torch.tensor(list(names))
    previews = previews_of(clean.origin, clean.index[places].tolist(), side=CLEAN_SIDE)
    columns = (
        list(names.values()),
        [classes[number] for number in clean.label[places].tolist()],
        [preview.kind for preview in previews],
        [preview.content for preview in previews],
    )
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, CLEAN, strict=True)], CLEAN)


def _write(path: Path, table: pa.Table) -> None:
    metadata = {**(table.schema.metadata or {}), b"format_version": str(FORMAT).encode()}
    file = BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), file)
    write_atomically(path, file.getvalue())

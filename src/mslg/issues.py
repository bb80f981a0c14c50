"""From a trained method to one row a training sample: is its label an issue, and what should it be?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor

from .evidence import Evidence
from .method import Method
from .source import Source
from .splits import Splits
from .trace import Trace

FORMAT = 1
PIECE = 65536  # rows handled at a time: the table may be larger than memory
ENTRIES = 2**22  # of a posterior handled at a time: with many classes, fewer rows


@runtime_checkable
class Located(Protocol):
    """Inputs that are files."""

    def path(self, position: int) -> Path: ...


def posterior(trace: Trace, evidence: Evidence, index: Tensor, given: Tensor) -> Tensor:
    """(samples, classes) probabilities of the true label, from the label given and the predictions made in passing.
    A sample that was never trained on (it served as the clean set) has no prediction: its label stands."""
    here = index.to(trace.mean.device)
    found = evidence.posterior(trace.mean[here].cpu(), given)
    unseen = ~trace.seen()[here].cpu()
    found[unseen] = F.one_hot(given[unseen], found.shape[1]).to(found.dtype)
    return found


def pieces_of(index: Tensor, classes: int) -> list[Tensor]:
    """Some rows at a time."""
    return list(index.split(max(1, min(PIECE, ENTRIES // classes))))


def suggestions(source: Source, data: Splits, trace: Trace, evidence: Evidence) -> Tensor:
    """The label that each training sample probably should have, in data order."""
    pieces = pieces_of(data.train.index, len(source.classes))
    return torch.cat([posterior(trace, evidence, piece, source.label[piece]).argmax(1) for piece in pieces])


def label_frames(
    source: Source, data: Splits, method: Method, trace: Trace, evidence: Evidence
) -> Iterator[pd.DataFrame]:
    """The rows in data order, piece by piece."""
    names = np.array(source.classes, dtype=object)
    ids = np.array(source.ids, dtype=object)
    ranks = _ranks(source, data, trace, evidence)
    done = 0
    for index in pieces_of(data.train.index, len(source.classes)):
        here = index.to(trace.mean.device)
        given = source.label[index]
        probs, seen = trace.mean[here], trace.seen()[here].cpu()
        predicted = torch.where(seen, probs.argmax(1).cpu(), given)
        soft = method.soft_labels(index.to(method.task.device))
        true = posterior(trace, evidence, index, given)
        suggested = true.argmax(1)
        frame = pd.DataFrame(
            {
                "id": ids[index.numpy()],
                "given_label": names[given.numpy()],
                "predicted_label": names[predicted.numpy()],
                "is_label_issue": (suggested != given).numpy(),
                "label_quality": torch.where(seen, _of_given(true, given), torch.nan).float().numpy(),
                "suggested_label": names[suggested.numpy()],
                "soft_label": list((probs if soft is None else soft).detach().float().cpu().numpy()),
                "rank": ranks[done : done + len(index)],
            }
        )
        if isinstance(source.store, Located):
            frame["path"] = [str(source.store.path(position)) for position in index.tolist()]
        yield frame
        done += len(index)


def label_frame(source: Source, data: Splits, method: Method, trace: Trace, evidence: Evidence) -> pd.DataFrame:
    """All rows at once."""
    return pd.concat(list(label_frames(source, data, method, trace, evidence)), ignore_index=True)


def write_labels(path: Path, source: Source, data: Splits, method: Method, trace: Trace, evidence: Evidence) -> None:
    """The rows as a Parquet file, written piece by piece."""
    temporary = path.with_name(f".{path.name}.partial")
    writer: pq.ParquetWriter | None = None
    for frame in label_frames(source, data, method, trace, evidence):
        table = pa.Table.from_pandas(frame, preserve_index=False)
        if writer is None:
            soft = table.schema.get_field_index("soft_label")
            schema = table.schema.set(soft, pa.field("soft_label", pa.list_(pa.float32())))
            schema = schema.with_metadata({**(schema.metadata or {}), b"format_version": str(FORMAT).encode()})
            writer = pq.ParquetWriter(temporary, schema)
        writer.write_table(table.cast(writer.schema))
    if writer is not None:
        writer.close()
    temporary.replace(path)


def _of_given(probs: Tensor, given: Tensor) -> Tensor:
    return probs.gather(1, given.unsqueeze(1)).squeeze(1)


def _ranks(
    source: Source, data: Splits, trace: Trace, evidence: Evidence
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Each training sample's place in the order from the worst label to the best, from 0."""
    pieces = [(piece, source.label[piece]) for piece in pieces_of(data.train.index, len(source.classes))]
    quality = torch.cat([_of_given(posterior(trace, evidence, piece, given), given) for piece, given in pieces])
    unseen = ~trace.seen()[data.train.index.to(trace.mean.device)].cpu()
    quality[unseen] = torch.nan  # sorted last
    ranks = np.empty(len(quality), dtype=np.int64)
    ranks[np.argsort(quality.numpy(), kind="stable")] = np.arange(len(quality))
    return ranks

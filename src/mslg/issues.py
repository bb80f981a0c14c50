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
from torch import Tensor

from .method import Method
from .source import Source
from .splits import Splits
from .trace import Trace

FORMAT = 1
PIECE = 65536  # rows handled at a time: the table may be larger than memory


@runtime_checkable
class Located(Protocol):
    """Inputs that are files."""

    def path(self, position: int) -> Path: ...


def label_quality(trace: Trace, index: Tensor, given: Tensor) -> Tensor:
    """The probability of the given label in the predictions made in passing, averaged over late visits: low is bad."""
    quality = trace.mean[index].gather(1, given.unsqueeze(1)).squeeze(1)
    return torch.where(trace.seen()[index], quality, torch.nan)


def label_frames(source: Source, data: Splits, method: Method, trace: Trace) -> Iterator[pd.DataFrame]:
    """The rows in data order, piece by piece."""
    names = np.array(source.classes, dtype=object)
    ids = np.array(source.ids, dtype=object)
    ranks = _ranks(data, trace, source.label)
    done = 0
    for index in data.train.index.split(PIECE):
        here = index.to(trace.mean.device)
        given = source.label[index]
        probs, seen = trace.mean[here], trace.seen()[here].cpu()
        # Samples that were never trained on (they served as the clean set) have no prediction: the label stands.
        predicted = torch.where(seen, probs.argmax(1).cpu(), given)
        soft = method.soft_labels(index.to(method.task.device))
        issue = predicted != given
        frame = pd.DataFrame(
            {
                "id": ids[index.numpy()],
                "given_label": names[given.numpy()],
                "predicted_label": names[predicted.numpy()],
                "is_label_issue": issue.numpy(),
                "label_quality": label_quality(trace, here, given.to(here.device)).cpu().numpy(),
                "suggested_label": names[torch.where(issue, predicted, given).numpy()],
                "soft_label": list((probs if soft is None else soft).detach().float().cpu().numpy()),
                "rank": ranks[done : done + len(index)],
            }
        )
        if isinstance(source.store, Located):
            frame["path"] = [str(source.store.path(position)) for position in index.tolist()]
        yield frame
        done += len(index)


def label_frame(source: Source, data: Splits, method: Method, trace: Trace) -> pd.DataFrame:
    """All rows at once."""
    return pd.concat(list(label_frames(source, data, method, trace)), ignore_index=True)


def write_labels(path: Path, source: Source, data: Splits, method: Method, trace: Trace) -> None:
    """The rows as a Parquet file, written piece by piece."""
    temporary = path.with_name(f".{path.name}.partial")
    writer: pq.ParquetWriter | None = None
    for frame in label_frames(source, data, method, trace):
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


def _ranks(data: Splits, trace: Trace, label: Tensor) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Each training sample's place in the order from the worst label to the best, from 0."""
    device = trace.mean.device
    pieces = data.train.index.split(PIECE)
    quality = torch.cat([label_quality(trace, piece.to(device), label[piece].to(device)).cpu() for piece in pieces])
    ranks = np.empty(len(quality), dtype=np.int64)
    ranks[np.argsort(quality.numpy(), kind="stable")] = np.arange(len(quality))
    return ranks

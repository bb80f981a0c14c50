"""From a trained method to one row a training sample: is its label an issue, and what should it be?"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor

from .error_rate import ErrorRate, state
from .evidence import Evidence, weigh
from .files import replacing
from .method import Method
from .source import Located, Source
from .splits import Splits
from .trace import Trace

log = logging.getLogger("mslg")

FORMAT = 1
WORSE = 0.7  # of the probability of given labels: below this part of it, a final look is not to be trusted
PIECE = 65536  # rows handled at a time: the table may be larger than memory
ENTRIES = 2**22  # of a posterior handled at a time: with many classes, fewer rows


@dataclass(frozen=True)
class Judgement:
    """What a run says of its training samples' labels in the end."""

    evidence: Evidence
    rate: ErrorRate
    odds: Tensor  # (training samples,) log odds of a wrong label, in data order; NaN for a sample never trained on
    limit: int | None  # of the list, how many may be called issues; None: as many as have a likelier label

    def ranks(self) -> Tensor:
        """Each training sample's place in the order from the worst label to the best, from 0."""
        ranks = torch.empty(len(self.odds), dtype=torch.int64)
        ranks[torch.argsort(-self.odds, stable=True)] = torch.arange(len(self.odds))
        return ranks

    def quality(self) -> Tensor:
        """(training samples,) the probability that the given label is right."""
        known = ~self.odds.isnan()
        quality = torch.full_like(self.odds, torch.nan)
        calibration = self.rate.calibration
        if bool(known.any()):
            odds = self.odds[known]
            quality[known] = torch.sigmoid(-odds) if calibration is None else 1 - calibration.chance(odds)
        return quality


def judge(source: Source, data: Splits, method: Method, trace: Trace, *, fdr: float | None = None) -> Judgement:
    """Look at every training sample once more with the finished network, and weigh what it says against the label."""
    trace.final = final_predictions(method, data, trace)
    if not _worth_more(trace, data):
        log.warning(
            "the finished network does worse on its own training samples than it did while it learned them, as batch "
            "norm does after few steps: the list rests on what it said in passing; train longer or in smaller batches"
        )
        trace.final = None
    weighed = weigh(method, data, trace)
    pieces = pieces_of(data.train.index, len(source.classes))
    odds = torch.cat([weighed.evidence.odds(trace.said(piece), source.label[piece]) for piece in pieces])
    seen = trace.seen()[data.train.index.to(trace.visits.device)].cpu()
    rate = state(weighed, odds[seen], data, trace)
    limit = None if fdr is None else rate.cut(odds[seen].sort(descending=True).values, fdr)
    return Judgement(weighed.evidence, rate, torch.where(seen, odds, torch.nan), limit)


def final_predictions(method: Method, data: Splits, trace: Trace) -> Tensor:
    """(samples of the source, classes) what the network says of each training sample, in evaluation mode."""
    training = method.training
    method.eval()
    table = torch.zeros(*trace.last.shape, dtype=torch.float16)
    with torch.inference_mode():
        for batch in data.in_order():
            table[batch.index.cpu()] = method.predict(batch.inputs).exp().to("cpu", torch.float16)
    method.train(training)
    return table


def _worth_more(trace: Trace, data: Splits) -> bool:
    """Whether the final look agrees with the given labels about as well as the predictions made in passing did."""
    assert trace.final is not None
    index = data.train.index[trace.seen()[data.train.index.to(trace.visits.device)].cpu()]
    if not len(index):
        return True
    here = index.to(trace.given.device)
    given = trace.given[here]
    return float(trace.final[index, given.cpu()].float().mean()) >= WORSE * float(trace.mean[here, given].mean())


def posterior(trace: Trace, evidence: Evidence, index: Tensor, given: Tensor) -> Tensor:
    """(samples, classes) probabilities of the true label, from the label given and the network's predictions. A sample
    that was never trained on (it served as the clean set) has none: its label stands."""
    found = evidence.posterior(trace.said(index), given)
    unseen = ~trace.seen()[index.to(trace.visits.device)].cpu()
    found[unseen] = F.one_hot(given[unseen], found.shape[1]).to(found.dtype)
    return found


def pieces_of(index: Tensor, classes: int) -> list[Tensor]:
    """Some rows at a time."""
    return list(index.split(max(1, min(PIECE, ENTRIES // classes))))


def suggestions(source: Source, data: Splits, trace: Trace, judgement: Judgement) -> Tensor:
    """The label that each training sample probably should have, in data order: the given one unless it is flagged."""
    pieces = pieces_of(data.train.index, len(source.classes))
    likely = [posterior(trace, judgement.evidence, piece, source.label[piece]).argmax(1) for piece in pieces]
    found = torch.cat(likely)
    if judgement.limit is None:
        return found
    return torch.where(judgement.ranks() < judgement.limit, found, source.label[data.train.index])


def stated(source: Source, data: Splits, judgement: Judgement, suggested: Tensor, fdr: float | None) -> dict[str, Any]:
    """How many labels are wrong, and how many of the listed ones, for the summary."""
    flagged = suggested != source.label[data.train.index]
    order = torch.argsort(-judgement.odds, stable=True)
    order = order[~judgement.odds[order].isnan()]
    return judgement.rate.as_json(judgement.odds[order], flagged[order], fdr)


def label_frames(
    source: Source, data: Splits, method: Method, trace: Trace, judgement: Judgement
) -> Iterator[pd.DataFrame]:
    """The rows in data order, piece by piece."""
    names = np.array(source.classes, dtype=object)
    ids = np.array(source.ids, dtype=object)
    ranks, quality = judgement.ranks(), judgement.quality()
    all_suggested = suggestions(source, data, trace, judgement)
    done = 0
    for index in pieces_of(data.train.index, len(source.classes)):
        here = slice(done, done + len(index))
        given, suggested = source.label[index], all_suggested[here]
        probs, seen = trace.said(index), trace.seen()[index.to(trace.visits.device)].cpu()
        predicted = torch.where(seen, probs.argmax(1), given)
        soft = method.soft_labels(index.to(method.task.device))
        frame = pd.DataFrame(
            {
                "id": ids[index.numpy()],
                "given_label": names[given.numpy()],
                "predicted_label": names[predicted.numpy()],
                "is_label_issue": (suggested != given).numpy(),
                "label_quality": quality[here].float().numpy(),
                "suggested_label": names[suggested.numpy()],
                "soft_label": list((probs if soft is None else soft).detach().float().cpu().numpy()),
                "rank": ranks[here].numpy(),
            }
        )
        if isinstance(source.store, Located):
            frame["path"] = [str(source.store.path(position)) for position in index.tolist()]
        yield frame
        done += len(index)


def label_frame(source: Source, data: Splits, method: Method, trace: Trace, judgement: Judgement) -> pd.DataFrame:
    """All rows at once."""
    return pd.concat(list(label_frames(source, data, method, trace, judgement)), ignore_index=True)


def write_labels(path: Path, source: Source, data: Splits, method: Method, trace: Trace, judgement: Judgement) -> None:
    """The rows as a Parquet file, written piece by piece."""
    frames = label_frames(source, data, method, trace, judgement)
    first = pa.Table.from_pandas(next(frames), preserve_index=False)
    soft = first.schema.get_field_index("soft_label")
    schema = first.schema.set(soft, pa.field("soft_label", pa.list_(pa.float32())))
    schema = schema.with_metadata({**(schema.metadata or {}), b"format_version": str(FORMAT).encode()})
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        writer.write_table(first.cast(schema))
        for frame in frames:
            writer.write_table(pa.Table.from_pandas(frame, preserve_index=False).cast(schema))

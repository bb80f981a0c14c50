"""From a trained method to one row a training sample: is its label an issue, and what should it be?"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ..data.sample_table import pieces_of
from ..data.source import Source
from ..data.splits import Splits
from ..data.stores import Located
from ..runtime.files import replacing
from ..training.method import Method
from ..training.prediction_history import PredictionHistory
from .error_rate import ErrorRate, descending, state
from .posterior import Evidence, log_odds, weigh

log = logging.getLogger("mslg")

FORMAT = 1
WORSE = 0.7  # of the probability of given labels: below this part of it, a final look is not to be trusted


@dataclass(frozen=True)
class Judgement:
    """What a run says of its training samples' labels in the end."""

    evidence: Evidence
    rate: ErrorRate
    odds: Tensor  # (training samples,) log odds of a wrong label, in data order; NaN for a sample never trained on
    limit: int | None  # of the list, how many may be called issues; None: as many as have a likelier label
    likely: Tensor | None = None  # (training samples,) the likeliest class, where it has been worked out

    @cached_property
    def order(self) -> Tensor:
        """The training samples' positions from the worst label to the best; those never trained on come last."""
        return torch.argsort(-self.odds, stable=True).int()

    def ranks(self) -> Tensor:
        """Each training sample's place in the order from the worst label to the best, from 0."""
        ranks = torch.empty_like(self.order)
        ranks[self.order] = torch.arange(len(ranks), dtype=ranks.dtype)
        return ranks

    def quality(self) -> Tensor:
        """(training samples,) the probability that the given label is right."""
        calibration, quality = self.rate.calibration, torch.full_like(self.odds, torch.nan)
        known = ~self.odds.isnan()
        if bool(known.any()):
            odds = self.odds[known]
            quality[known] = torch.sigmoid(-odds) if calibration is None else calibration.chance(odds).neg_().add_(1)
        return quality


def judge(
    source: Source, data: Splits, method: Method, history: PredictionHistory, *, fdr: float | None = None
) -> Judgement:
    """Look at every training sample once more with the finished network, and weigh what it says against the label."""
    look_again(method, data, history)
    if not _worth_more(history, data):
        log.warning(
            "the finished network does worse on its own training samples than it did while it learned them, as batch "
            "norm does after few steps: the list rests on what it said in passing; train longer or in smaller batches"
        )
        history.final = None
    weighed = weigh(method, data, history)
    odds, likely = _weighed(source, data, history, weighed.evidence)
    known = odds[~odds.isnan()]
    rate = state(weighed, known, data, history)
    limit = None if fdr is None else rate.cut(descending(known), fdr)
    return Judgement(weighed.evidence, rate, odds, limit, likely)


def look_again(method: Method, data: Splits, history: PredictionHistory) -> None:
    """What the network says of each training sample in evaluation mode becomes the history's final predictions."""
    training = method.training
    method.eval()
    table = history.begin_final()
    with torch.inference_mode(), method.computing():
        for batch in data.in_order():
            table[batch.index] = method.predict(batch.inputs).exp()
    method.train(training)


def _weighed(source: Source, data: Splits, history: PredictionHistory, evidence: Evidence) -> tuple[Tensor, Tensor]:
    """Of each training sample the log odds of a wrong label and the likeliest class, in one pass over the table of
    predictions, which may be larger than memory."""
    index = data.train.index
    odds = torch.empty(len(index), dtype=torch.float64)
    likely = torch.empty(len(index), dtype=torch.int32)
    done = 0
    for piece in pieces_of(index, len(source.classes)):
        here, given, seen = slice(done, done + len(piece)), source.label[piece], history.seen(piece)
        found = evidence.posterior(history.said(piece), given)
        right = found.gather(1, given.unsqueeze(1)).squeeze(1)
        odds[here] = torch.where(seen, log_odds(right), torch.nan)
        likely[here] = torch.where(seen, found.argmax(1), given).int()
        done += len(piece)
    return odds, likely


def _worth_more(history: PredictionHistory, data: Splits) -> bool:
    """Whether the final look agrees with the given labels about as well as the predictions made in passing did."""
    assert history.final is not None
    final = passing = 0.0
    for piece in pieces_of(data.train.index, history.classes):
        index = piece[history.seen(piece)]
        given = history.given[index.to(history.given.device)].cpu().unsqueeze(1)
        final += float(history.final[index].gather(1, given).sum(dtype=torch.float64))
        passing += float(history.mean[index].cpu().gather(1, given).sum(dtype=torch.float64))
    return final >= WORSE * passing


def suggestions(source: Source, data: Splits, history: PredictionHistory, judgement: Judgement) -> Tensor:
    """The label that each training sample probably should have, in data order: the given one unless it is flagged."""
    found = judgement.likely
    if found is None:
        found = _weighed(source, data, history, judgement.evidence)[1]
    if judgement.limit is None:
        return found
    return torch.where(judgement.ranks() < judgement.limit, found, data.train.label.int())


def stated(source: Source, data: Splits, judgement: Judgement, suggested: Tensor, fdr: float | None) -> dict[str, Any]:
    """How many labels are wrong, and how many of the listed ones, for the summary."""
    flagged = suggested != source.label[data.train.index]
    order = judgement.order[: int((~judgement.odds.isnan()).sum())]
    return judgement.rate.as_json(judgement.odds[order], flagged[order], fdr)


def label_frames(
    source: Source, data: Splits, method: Method, history: PredictionHistory, judgement: Judgement
) -> Iterator[pd.DataFrame]:
    """The rows in data order, piece by piece."""
    names = np.array(source.classes, dtype=object)
    ranks, quality = judgement.ranks(), judgement.quality()
    all_suggested = suggestions(source, data, history, judgement)
    done = 0
    for index in pieces_of(data.train.index, len(source.classes)):
        here = slice(done, done + len(index))
        given, suggested = source.label[index], all_suggested[here]
        probs, seen = history.said(index), history.seen(index)
        predicted = torch.where(seen, probs.argmax(1), given)
        soft = method.soft_labels(index.to(method.task.device))
        frame = pd.DataFrame(
            {
                "id": np.array([source.ids[position] for position in index.tolist()], dtype=object),
                "given_label": names[given.numpy()],
                "predicted_label": names[predicted.numpy()],
                "is_label_issue": (suggested != given).numpy(),
                "label_quality": quality[here].float().numpy(),
                "suggested_label": names[suggested.numpy()],
                "soft_label": list((probs if soft is None else soft).detach().float().cpu().numpy()),
                "rank": ranks[here].long().numpy(),
            }
        )
        if isinstance(source.store, Located):
            frame["path"] = [str(source.store.path(position)) for position in index.tolist()]
        yield frame
        done += len(index)


def label_frame(
    source: Source, data: Splits, method: Method, history: PredictionHistory, judgement: Judgement
) -> pd.DataFrame:
    """All rows at once."""
    return pd.concat(list(label_frames(source, data, method, history, judgement)), ignore_index=True)


def write_labels(
    path: Path,
    source: Source,
    data: Splits,
    method: Method,
    history: PredictionHistory,
    judgement: Judgement,
) -> None:
    """The rows as a Parquet file, written piece by piece."""
    frames = label_frames(source, data, method, history, judgement)
    first = pa.Table.from_pandas(next(frames), preserve_index=False)
    soft = first.schema.get_field_index("soft_label")
    schema = first.schema.set(soft, pa.field("soft_label", pa.list_(pa.float32())))
    schema = schema.with_metadata({**(schema.metadata or {}), b"format_version": str(FORMAT).encode()})
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        writer.write_table(first.cast(schema))
        for frame in frames:
            writer.write_table(pa.Table.from_pandas(frame, preserve_index=False).cast(schema))

"""From a trained method to label issues: its predictions, its clean samples and its prediction history as arrays.

Where a method has predictions by networks that have not seen the given labels, these and those of the finished network
are averaged: the first are never memorised, the second have learned from better labels. Neither is the better one
everywhere, and their mean is nearly as good as the better one in every setting (docs/results/robustness.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from ..data.sample_table import pieces_of
from ..data.samples import Samples
from ..data.splits import Splits
from ..data.stores import Located
from ..networks.evaluating import evaluating
from ..training.evaluation import predictions as predict
from ..training.method import Method
from ..training.prediction_history import PredictionHistory
from ..training.stacking import floored
from .error_rate import NO_CLEAN_SAMPLES, missing_evidence
from .evidence import Evidence, Predictions, VerifiedSamples
from .flagging import Flagging
from .ranked_list import LabelIssues, rank_labels

log = logging.getLogger("mslg")

# Of the mean probability of given labels during training: with less, the final predictions are ignored.
LEAST_AGREEMENT = 0.7
LIKELIER = Flagging()
HELD = 2**24  # probabilities of all training samples that are kept rather than computed again


def rank_training_labels(
    method: Method, data: Splits, history: PredictionHistory, *, flagging: Flagging = LIKELIER
) -> LabelIssues:
    """The label issues of the training samples, by the finished network's predictions for them and by those of networks
    that have not seen the given labels, if there are any."""
    predict_training_samples(method, data, history)
    if not _agrees(history, data):
        log.warning(
            "the finished network is worse on its own training samples than it was during training, as batch norm is "
            "after few steps: the list uses the predictions made during training; train longer or in smaller batches"
        )
        history.final = None
    return rank_labels(
        training_predictions(method, data, history), evidence_of(method, data), fdr=flagging.fdr, flag=flagging.flag
    )


def predict_training_samples(method: Method, data: Splits, history: PredictionHistory) -> None:
    """Fill the history's final predictions."""
    table = history.begin_final()
    with evaluating(method), method.computing():
        for batch in data.in_order():
            table[batch.index] = method.predict(batch.inputs).exp()


def training_predictions(method: Method, data: Splits, history: PredictionHistory) -> Predictions:
    """What the method predicts for its training samples."""
    index, source = data.train.index, data.source
    store = source.store

    def probs(positions: Tensor) -> Tensor:
        said = history.said(index[positions])
        unseen = method.unseen(index[positions].to(method.task.device))
        if unseen is None:
            return said
        return ((floored(said.double().log()) + floored(unseen.cpu())) / 2).softmax(1).float()

    return Predictions(
        given=data.train.label,
        classes=source.classes,
        probs=computed_once(probs, len(index), method.task.classes),
        ids=lambda positions: source.ids_at(index[positions]),
        paths=(lambda positions: [str(store.path(place)) for place in index[positions].tolist()])
        if isinstance(store, Located)
        else None,
        soft_labels=lambda positions: method.soft_labels(index[positions].to(method.task.device)),
        known=torch.cat([history.seen(piece) for piece in pieces_of(index, 1)]),
        predicted_in_training=torch.cat([history.last_predicted[piece].cpu() for piece in pieces_of(index, 1)]),
    )


def computed_once(rows: Callable[[Tensor], Tensor], samples: int, classes: int) -> Callable[[Tensor], Tensor]:
    """A function of positions that computes the rows of all samples when it is first called, if they are few enough to
    be kept: the list, its estimates and its files all ask for them."""
    if samples * classes > HELD:
        return rows
    held: list[Tensor] = []

    def chosen(positions: Tensor) -> Tensor:
        if not held:
            held.append(torch.cat([rows(piece) for piece in pieces_of(torch.arange(samples), classes)]))
        return held[0][positions]

    return chosen


def evidence_of(method: Method, data: Splits) -> Evidence:
    """What the clean samples say."""
    about = partial(Evidence, reviewed=data.decided, reviewed_wrong=data.decided_wrong, seed=data.seed)
    if (unseen := _unseen_clean(method, data)) is not None:
        shift = method.class_shift()
        shift = None if shift is None else shift.cpu().double()
        return about(unseen, cross_fitted=True, by_folds=True, class_shift=shift)
    held_out = verified_samples(method, data, (data.select, data.report))
    return about(
        held_out,
        pairs=data.pairs,
        in_sample=verified_samples(method, data, (data.unbiased_clean,)) if held_out is None else None,
    )


def _unseen_clean(method: Method, data: Splits) -> VerifiedSamples | None:
    """All clean samples that are an unbiased draw, predicted by networks that have not seen them."""
    parts = data.drawn_parts
    predicted = [method.unseen_clean(part) for part in parts]
    probs = [each.exp() for each in predicted if each is not None]
    if not probs or len(probs) < len(parts):
        return None
    label, given = (torch.cat(each) for each in ([part.label for part in parts], [_given(part) for part in parts]))
    return VerifiedSamples(torch.cat(probs), given, label, torch.arange(len(label)))


def verified_samples(method: Method, data: Splits, parts: Iterable[Samples | None]) -> VerifiedSamples | None:
    """These clean samples with the method's predictions; None if there are none."""
    present = [part for part in parts if part is not None and len(part)]
    if not present:
        return None
    probs = torch.cat([predict(method, data, part) for part in present]).exp()
    given = torch.cat([_given(part) for part in present])
    return VerifiedSamples(probs, given, torch.cat([part.label for part in present]), torch.arange(len(given)))


def missing_clean_samples(data: Splits, *, cross_fits: bool) -> str | None:
    """What these splits lack for an error rate, if anything. A method that cross-fits predicts every clean sample by
    networks that have not seen it."""
    if not data.drawn_parts:
        return NO_CLEAN_SAMPLES
    parts = data.drawn_parts if cross_fits else [part for part in (data.select, data.report) if part is not None]
    given = torch.cat([_given(part) for part in parts]) if parts else torch.empty(0)
    return missing_evidence(
        given,
        pairs=bool((given >= 0).any()) if cross_fits else data.pairs is not None,
        classes=int(data.train.label.max()) + 1,
    )


def _given(part: Samples) -> Tensor:
    return torch.full_like(part.label, -1) if part.given is None else part.given


def _agrees(history: PredictionHistory, data: Splits) -> bool:
    """Whether final predictions agree with the given labels about as well as those made during training did."""
    assert history.final is not None
    final = before = 0.0
    for piece in pieces_of(data.train.index, history.classes):
        index = piece[history.seen(piece)]
        given = history.given[index.to(history.given.device)].cpu().unsqueeze(1)
        final += float(history.final[index].gather(1, given).sum(dtype=torch.float64))
        before += float(history.mean[index].cpu().gather(1, given).sum(dtype=torch.float64))
    return final >= LEAST_AGREEMENT * before

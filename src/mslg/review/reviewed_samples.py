"""Reviewed samples change sides: out of the training set, into the clean samples that steer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import torch

from ..data.concat import concat_sources
from ..data.make_splits import check_train
from ..data.samples import Samples
from ..data.source import Source
from ..data.splits import Splits
from .decisions import Decision

log = logging.getLogger("mslg")


def with_reviewed(data: Splits, source: Source, decisions: Mapping[str, Decision]) -> Splits:
    """The same division with decisions about training samples carried out: verified ones join the clean samples that
    steer, with the label decided on; removed ones are gone. The held-out parts stay as they are, and so does what is
    counted on doubly labelled samples: a reviewer sees the samples that look wrong, which says nothing of the rest."""
    place = {name: position for position, name in enumerate(source.ids)}
    number = {name: position for position, name in enumerate(source.classes)}
    decided = {place[each.id]: each for each in decisions.values() if each.verified or each.decision == "remove"}
    training = set(data.train.index.tolist())
    if known := len(decided.keys() - training):
        log.info("%d decisions are about samples of the clean set: their verified labels there stand", known)
    decided = {position: each for position, each in sorted(decided.items()) if position in training}
    if not decided:
        return data
    kept = ~torch.isin(data.train.index, torch.tensor(list(decided)))
    train = data.train.at(kept.nonzero().flatten())
    check_train(train, source.classes)
    given = dict(zip(decided, source.label[list(decided)].tolist(), strict=True))
    verified = {position: number[each.label] for position, each in decided.items() if each.verified}
    log.info("%d reviewed samples join the clean set, %d are removed", len(verified), len(decided) - len(verified))
    right = sum(given[position] == label for position, label in verified.items())
    data = replace(data, train=train, decided=len(verified), decided_wrong=len(verified) - right)
    if not verified:
        return data
    index, label = torch.tensor(list(verified)), torch.tensor(list(verified.values()))
    # Their given labels count as unknown: of samples chosen because their labels look wrong, most labels are wrong,
    # and a transition matrix or a noise rate counted on them would say so of all.
    unknown = torch.full_like(label, -1)
    chosen = Samples(source.store, index, label, unknown, source)
    clean = chosen if data.clean is None else _together(data.clean, chosen)
    return replace(data, clean=clean, reviewed=len(chosen))


def _together(clean: Samples, chosen: Samples) -> Samples:
    label = torch.cat([clean.label, chosen.label])
    given = None if clean.given is None else torch.cat([clean.given, torch.full_like(chosen.label, -1)])
    if clean.store is chosen.store:
        return Samples(clean.store, torch.cat([clean.index, chosen.index]), label, given, clean.origin)
    assert clean.origin is not None
    assert chosen.origin is not None
    origin = concat_sources(clean.origin, chosen.origin.at(chosen.index))
    index = torch.cat([clean.index, len(clean.origin) + torch.arange(len(chosen))])
    return Samples(origin.store, index, label, given, origin)

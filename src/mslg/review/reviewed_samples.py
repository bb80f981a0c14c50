"""Reviewed samples move from the training set to the clean samples."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import torch

from ..data.concat import concat_sources
from ..data.make_splits import check_train
from ..data.samples import Samples
from ..data.splits import Splits
from .decisions import Decision

log = logging.getLogger("mslg")


def with_reviewed(data: Splits, decisions: Mapping[str, Decision]) -> Splits:
    """The splits with decisions about training samples applied: verified samples join the clean ones, with the label
    decided on; removed ones are left out. The held-out parts stay as they are."""
    if not decisions:
        return data
    source = data.source
    place = {name: position for position, name in enumerate(source.ids)}
    number = {name: position for position, name in enumerate(source.classes)}
    decided = {place[each.id]: each for each in decisions.values() if each.removes or each.verified_label is not None}
    training = set(data.train.index.tolist())
    if known := len(decided.keys() - training):
        log.info("%d decisions are about samples of the clean set, whose verified labels are kept", known)
    decided = {position: each for position, each in sorted(decided.items()) if position in training}
    if not decided:
        return data
    kept = ~torch.isin(data.train.index, torch.tensor(list(decided)))
    train = data.train.at(kept.nonzero().flatten())
    check_train(train, source.classes)
    verified = {at: number[name] for at, each in decided.items() if (name := each.verified_label) is not None}
    log.info("%d reviewed samples join the clean set, %d are removed", len(verified), len(decided) - len(verified))
    index, label = (torch.tensor(list(values), dtype=torch.int64) for values in (verified, verified.values()))
    wrong = int((source.label[index] != label).sum())
    data = replace(data, train=train, decided=len(verified), decided_wrong=wrong)
    if not verified:
        return data
    # Their given labels count as unknown: they were chosen for review because they look wrong, so a transition matrix
    # or a noise rate counted on them would be biased.
    chosen = Samples(source.store, index, label, torch.full_like(label, -1), source)
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

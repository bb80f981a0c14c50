"""Reviewed samples move from the training set to the clean samples."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import tee
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ..data.batch import Inputs, map_inputs
from ..data.make_splits import check_train
from ..data.source import InputStore, Located, Source, Worded
from ..data.splits import Samples, Splits
from .decisions import Decision

log = logging.getLogger("mslg")


def with_reviewed(data: Splits, decisions: Mapping[str, Decision]) -> Splits:
    """The splits with decisions about training samples applied: verified samples join the clean ones, with the label
    decided on; removed ones are left out. The held-out parts stay as they are."""
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
    origin = joined(clean.origin, chosen.origin.at(chosen.index))
    index = torch.cat([clean.index, len(clean.origin) + torch.arange(len(chosen))])
    return Samples(origin.store, index, label, given, origin)


def joined(first: Source, second: Source) -> Source:
    """The samples of two sources, one after the other."""
    shown = None
    if first.shown is not None or second.shown is not None:
        shown = _store(first.shown or first.store, second.shown or second.store)
    return Source(
        store=_store(first.store, second.store),
        label=torch.cat([first.label, second.label]),
        classes=first.classes,
        ids=(*first.ids, *second.ids),
        ids_given=first.ids_given and second.ids_given,
        shown=shown,
    )


class JoinedStore:
    """The inputs of two stores, one after the other."""

    def __init__(self, first: InputStore, second: InputStore) -> None:
        self.first, self.second = first, second

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Inputs]:
        bound = len(self.first)
        asked, for_first, for_second = tee(indices, 3)  # each store may ask for groups ahead of their time
        first = self.first.batches(group[group < bound] for group in for_first if bool((group < bound).any()))
        second = self.second.batches(
            group[group >= bound] - bound for group in for_second if bool((group >= bound).any())
        )
        for group in asked:
            early = group < bound
            parts = [next(stream) for stream, used in ((first, early), (second, ~early)) if bool(used.any())]
            order = torch.cat([early.nonzero().flatten(), (~early).nonzero().flatten()]).argsort()
            yield map_inputs(lambda tensor: tensor[order], _concatenated(parts))  # noqa: B023


class JoinedFiles(JoinedStore):
    """Files of two stores."""

    first: Files
    second: Files

    def path(self, position: int) -> Path:
        """Where a file is."""
        bound = len(self.first)
        return self.first.path(position) if position < bound else self.second.path(position - bound)


class Files(InputStore, Located, Protocol):
    """Inputs that are files."""


class JoinedTexts(JoinedStore):
    """Texts of two stores."""

    first: Texts
    second: Texts

    def text(self, position: int) -> str:
        """What a person reads."""
        bound = len(self.first)
        return self.first.text(position) if position < bound else self.second.text(position - bound)


class Texts(InputStore, Worded, Protocol):
    """Inputs that are made of texts."""


def _store(first: InputStore, second: InputStore) -> JoinedStore:
    if isinstance(first, Located) and isinstance(second, Located):
        return JoinedFiles(first, second)
    if isinstance(first, Worded) and isinstance(second, Worded):
        return JoinedTexts(first, second)
    return JoinedStore(first, second)


def _concatenated(parts: list[Inputs]) -> Inputs:
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, Mapping):
        return {key: _concatenated([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple | list):
        return type(first)(_concatenated(list(group)) for group in zip(*parts))
    return first

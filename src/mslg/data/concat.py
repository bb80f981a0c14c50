"""Two sources or stores, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import tee
from pathlib import Path

import torch
from torch import Tensor

from .batch import Inputs, concat_inputs, map_inputs
from .source import Source
from .stores import InputStore, Located, Worded


def concat_sources(first: Source, second: Source) -> Source:
    """The samples of two sources, one after the other. Verified and true labels are left out."""
    shown = None
    if first.shown is not None or second.shown is not None:
        shown = concat_stores(first.shown or first.store, second.shown or second.store)
    return Source(
        store=concat_stores(first.store, second.store),
        label=torch.cat([first.label, second.label]),
        classes=first.classes,
        ids=(*first.ids, *second.ids),
        ids_given=first.ids_given and second.ids_given,
        shown=shown,
    )


def concat_stores(first: InputStore, second: InputStore) -> ConcatStore:
    """The inputs of two stores, one after the other. Files stay files, and texts stay texts."""
    kinds = {Located: ConcatFiles, Worded: ConcatTexts}
    for protocol, kind in kinds.items():
        if isinstance(first, protocol) and isinstance(second, protocol):
            return kind(first, second)
    return ConcatStore(first, second)


class ConcatStore:
    """The inputs of two stores, one after the other."""

    def __init__(self, first: InputStore, second: InputStore) -> None:
        self.first, self.second = first, second

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Inputs]:
        bound = len(self.first)
        groups, for_first, for_second = tee(indices, 3)  # each store may request groups ahead of time
        first = self.first.batches(group[group < bound] for group in for_first if bool((group < bound).any()))
        second = self.second.batches(
            group[group >= bound] - bound for group in for_second if bool((group >= bound).any())
        )
        for group in groups:
            early = group < bound
            parts = [next(batches) for batches, used in ((first, early), (second, ~early)) if bool(used.any())]
            order = torch.cat([early.nonzero().flatten(), (~early).nonzero().flatten()]).argsort()
            yield map_inputs(lambda tensor: tensor[order], concat_inputs(parts))  # noqa: B023

    def locate(self, position: int) -> tuple[InputStore, int]:
        """The store that holds a position, and the position in it."""
        bound = len(self.first)
        return (self.first, position) if position < bound else (self.second, position - bound)


class ConcatFiles(ConcatStore):
    """The files of two stores."""

    def path(self, position: int) -> Path:
        """Where a file is."""
        store, position = self.locate(position)
        assert isinstance(store, Located)
        return store.path(position)


class ConcatTexts(ConcatStore):
    """The texts of two stores."""

    def text(self, position: int) -> str:
        """A text as a person reads it."""
        store, position = self.locate(position)
        assert isinstance(store, Worded)
        return store.text(position)

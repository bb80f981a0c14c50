"""A selection of a source's samples, with the labels they are used with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import tee

import torch
from torch import Tensor

from ..runtime.seeds import seeded
from .batch import Batch
from .source import Source
from .stores import InputStore, TensorStore

CPU = torch.device("cpu")
FEWEST = 2  # samples of a class, for a network to know it


@dataclass(frozen=True)
class Samples:
    """Samples of a source.

    Args:
        store: the inputs of the whole source.
        index: (samples,) int64 positions in the source.
        label: (samples,) int64 labels to use: given ones for training, verified ones for clean samples.
        given: (samples,) int64 labels that clean samples were originally given, −1 where unknown.
        origin: the source, for ids and previews.
    """

    store: InputStore
    index: Tensor
    label: Tensor
    given: Tensor | None = None
    origin: Source | None = None

    def __len__(self) -> int:
        return len(self.index)

    def at(self, positions: Tensor) -> Samples:
        """The samples at these positions of the selection."""
        given = None if self.given is None else self.given[positions]
        return Samples(self.store, self.index[positions], self.label[positions], given, self.origin)

    def has_every_class(self, classes: int) -> bool:
        """Whether there are a few labels of each class: networks exclude a class that they have not seen."""
        return int(torch.bincount(self.label, minlength=classes).min()) >= FEWEST

    def pairs(self) -> tuple[Tensor, Tensor] | None:
        """(given, verified) labels of the samples that have both; None if there are none."""
        if self.given is None or not bool((self.given >= 0).any()):
            return None
        both = self.given >= 0
        return self.given[both], self.label[both]

    def seeded(self, seed: int, purpose: str, *position: int) -> AbstractContextManager[None]:
        """Inside, random transforms of a Dataset are a function of the seed and the position."""
        if isinstance(self.store, TensorStore):
            return nullcontext()  # no random transforms
        return seeded(CPU, seed, purpose, *position)

    def batches(self, groups: Iterable[Tensor]) -> Iterator[Batch]:
        """One batch per group of positions. A store that reads lazily may request groups ahead of time."""
        parts, ahead = tee(self.at(group) for group in groups)
        for inputs, part in zip(self.store.batches(part.index for part in ahead), parts, strict=True):
            yield Batch(part.index, inputs, part.label, part.index.numpy())

"""The noisy training set and the clean set, as batches whose order is a function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import tee

import torch
from torch import Tensor

from .augment import UNCHANGED, Augment
from .batch import Batch
from .seeds import generator, seeded
from .source import InputStore

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Samples:
    """Some samples of a source: their positions in it, and the label each is used with."""

    store: InputStore
    index: Tensor
    label: Tensor
    given: Tensor | None = None  # of clean samples: the label each had been given, −1 where unknown

    def __len__(self) -> int:
        return len(self.index)

    def at(self, positions: Tensor) -> Samples:
        """The samples at these positions of this selection."""
        given = None if self.given is None else self.given[positions]
        return Samples(self.store, self.index[positions], self.label[positions], given)

    def pairs(self) -> tuple[Tensor, Tensor] | None:
        """(given, verified) labels of the samples that carry both, if there are any."""
        if self.given is None or not bool((self.given >= 0).any()):
            return None
        both = self.given >= 0
        return self.given[both], self.label[both]

    def batches(self, groups: Iterable[Tensor]) -> Iterator[Batch]:
        """A batch for each group of positions. A store that reads lazily may ask for groups ahead of their time."""
        parts, ahead = tee(self.at(group) for group in groups)
        for inputs, part in zip(self.store.batches(part.index for part in ahead), parts):
            yield Batch(part.index, inputs, part.label)


@dataclass(frozen=True)
class Splits:
    """What training sees. `train` carries given labels, the clean parts verified ones; there is no test set here."""

    train: Samples
    clean: Samples | None  # the part whose gradient steers the labels
    select: Samples | None  # for choosing among epochs and settings
    report: Samples | None  # for the numbers that are told
    batch_size: int = 128
    clean_batch_size: int = 128
    seed: int = 0
    device: torch.device = CPU
    augment: Augment = UNCHANGED
    augment_clean: bool = False  # whether clean batches are changed at random too

    @property
    def pairs(self) -> tuple[Tensor, Tensor] | None:
        """(given, verified) labels of the steering clean samples that carry both. Those of the held-out parts are held
        out too: a matrix counted on them would leak into the numbers told."""
        return None if self.clean is None else self.clean.pairs()

    def steps(self, excluded: Tensor | None = None) -> int:
        """Steps an epoch."""
        return len(_groups(len(self._kept(excluded)), self.batch_size))

    def batches(self, epoch: int, *, start: int = 0, excluded: Tensor | None = None) -> Iterator[Batch]:
        """One epoch of shuffled training batches, from step `start` on."""
        kept = self._kept(excluded)
        order = kept[torch.randperm(len(kept), generator=generator(self.seed, "order", epoch))]
        groups = [order[slice(*bounds)] for bounds in _groups(len(order), self.batch_size)]
        stream = self.train.batches(groups[start:])
        for step in range(start, len(groups)):
            with seeded(CPU, self.seed, "fetch", epoch, step):  # a Dataset may change its items at random
                batch = next(stream).to(self.device)
            yield replace(batch, inputs=self.augment.training(batch.inputs, self.seed, "augment", epoch, step))

    def clean_batches(self, epoch: int, *, start: int = 0, excluded: Tensor | None = None) -> CleanBatches:
        """An endless iterator over clean batches. Samples that a method has taken out of training serve as the clean
        set when there is none."""
        samples = self.clean
        if samples is None and excluded is not None and len(excluded):
            samples = self.train.at(torch.isin(self.train.index, excluded.cpu()).nonzero().flatten())
        random = self.augment if self.augment_clean else self.augment.prepared()
        return CleanBatches(samples, self.clean_batch_size, self.seed, epoch, start, self.device, random)

    def in_order(self, samples: Samples | None = None, *, excluded: Tensor | None = None) -> Iterator[Batch]:
        """Training samples (or others) once, in their own order: for passes that measure rather than train."""
        samples = self.train if samples is None else samples
        kept = self._kept(excluded) if samples is self.train else torch.arange(len(samples))
        groups = list(kept.split(4 * self.batch_size))
        stream = samples.batches(groups)
        for step in range(len(groups)):
            with seeded(CPU, self.seed, "fetch in order", step):
                batch = next(stream).to(self.device)
            yield replace(batch, inputs=self.augment.measuring(batch.inputs))

    def _kept(self, excluded: Tensor | None) -> Tensor:
        if excluded is None or not len(excluded):
            return torch.arange(len(self.train))
        return (~torch.isin(self.train.index, excluded.cpu())).nonzero().flatten()


class CleanBatches:
    """Endless batches of clean samples, reshuffled when used up. `position` counts those handed out this epoch."""

    def __init__(
        self,
        samples: Samples | None,
        size: int,
        seed: int,
        epoch: int,
        position: int,
        device: torch.device,
        augment: Augment = UNCHANGED,
    ) -> None:
        self.samples, self.size, self.seed, self.epoch, self.position = samples, size, seed, epoch, position
        self.device, self.augment = device, augment
        self._stream: Iterator[Batch] | None = None

    def __iter__(self) -> CleanBatches:
        return self

    def __next__(self) -> Batch:
        if self.samples is None:
            raise ValueError(
                "this method needs clean samples and there are none; pass clean= (--clean): a set of verified samples, "
                'a number of verified samples to take out of the data, or "auto" to use low-loss samples instead'
            )
        if self._stream is None:  # one for all batches: a store that reads lazily then reads ahead
            groups = _clean_groups(len(self.samples), self.size, self.seed, self.epoch, self.position)
            self._stream = self.samples.batches(groups)
        with seeded(CPU, self.seed, "fetch clean", self.epoch, self.position):
            batch = next(self._stream).to(self.device)
        self.position += 1
        step = self.position - 1
        return replace(batch, inputs=self.augment.training(batch.inputs, self.seed, "augment clean", self.epoch, step))


def _clean_groups(count: int, size: int, seed: int, epoch: int, position: int) -> Iterator[Tensor]:
    # A function, not a method: a stream that held on to its CleanBatches would keep its worker processes alive.
    size = min(size, count)
    while True:
        round_, within = divmod(position, count // size)
        order = torch.randperm(count, generator=generator(seed, "clean order", epoch, round_))
        yield order[within * size : (within + 1) * size]
        position += 1


def _groups(count: int, size: int) -> list[tuple[int, int]]:
    """Bounds of the batches. A single left-over sample joins the last batch: batch norm cannot take it alone."""
    bounds = [(start, min(start + size, count)) for start in range(0, count, size)]
    if len(bounds) > 1 and bounds[-1][1] - bounds[-1][0] == 1:
        bounds[-2:] = [(bounds[-2][0], count)]
    return bounds

"""Endless clean batches, whose order is a function of (seed, epoch, position)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..runtime.seeds import generator
from .augmentation import UNCHANGED, Augment
from .batch import Batch
from .samples import Samples


class Mixture(NamedTuple):
    """How a batch is composed when the clean samples are an unbiased draw followed by reviewed samples."""

    drawn: int
    reviewed: int
    share: float  # of reviewed samples in a batch


class CleanBatches:
    """Endless batches of clean samples, reshuffled after each pass. `position` counts the batches of this epoch."""

    def __init__(
        self,
        samples: Samples | None,
        size: int,
        seed: int,
        epoch: int,
        position: int,
        device: torch.device,
        augment: Augment = UNCHANGED,
        mixture: Mixture | None = None,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.samples, self.size, self.seed, self.epoch, self.position = samples, size, seed, epoch, position
        self.device, self.augment, self.mixture = device, augment, mixture
        self.rank, self.ranks = rank, ranks
        self._batches: Iterator[Batch] | None = None

    def __iter__(self) -> CleanBatches:
        return self

    def __next__(self) -> Batch:
        if self.samples is None:
            raise ValueError(
                "this method needs clean samples and there are none; pass clean= (--clean): a set of verified samples, "
                'a number of verified samples to take out of the data, or "auto" to use low-loss samples instead'
            )
        if self._batches is None:  # one iterator for all batches, so that a store that reads lazily can prefetch
            if self.mixture is None:
                groups = _shuffled(len(self.samples), self.size, self.seed, self.epoch, self.position)
            else:
                groups = _mixed(self.mixture, self.size, self.seed, self.epoch, self.position)
            self._batches = self.samples.batches(_part_of_each(groups, self.rank, self.ranks))
        position = (self.epoch, self.position, *([self.rank] if self.rank else []))
        with self.samples.seeded(self.seed, "fetch clean", *position):
            batch = next(self._batches).to(self.device)
        self.position += 1
        if self.augment is UNCHANGED:
            return batch
        return replace(batch, inputs=self.augment.training(batch.inputs, self.seed, "augment clean", *position))


def _shuffled(count: int, size: int, seed: int, epoch: int, position: int) -> Iterator[Tensor]:
    # A function, not a method: an iterator with a reference to its CleanBatches would keep the worker processes alive.
    size = min(size, count)
    shuffled = -1
    while True:
        round_, within = divmod(position, count // size)
        if round_ != shuffled:
            order = torch.randperm(count, generator=generator(seed, "clean order", epoch, round_))
            shuffled = round_
        yield order[within * size : (within + 1) * size]
        position += 1


def _mixed(mixture: Mixture, size: int, seed: int, epoch: int, position: int) -> Iterator[Tensor]:
    size = min(size, mixture.drawn + mixture.reviewed)
    drawn = _endless(seed, epoch, "drawn", mixture.drawn)
    reviewed = _endless(seed, epoch, "reviewed", mixture.reviewed)
    while True:
        # The number of reviewed samples is rounded down cumulatively, so it is right on average over the batches.
        before, after = (int(batches * size * mixture.share) for batches in (position, position + 1))
        chosen = [mixture.drawn + number for number in reviewed(before, after)]
        chosen += drawn(position * size - before, (position + 1) * size - after)
        yield torch.tensor(chosen)
        position += 1


def _endless(seed: int, epoch: int, kind: str, count: int) -> Callable[[int, int], list[int]]:
    """A function that returns a slice of an endless series of shuffles of range(count)."""

    def between(start: int, stop: int) -> list[int]:
        numbers: list[int] = []
        for round_ in range(start // count, -(-stop // count)):
            order = torch.randperm(count, generator=generator(seed, f"{kind} clean order", epoch, round_)).tolist()
            numbers += order[max(0, start - round_ * count) : stop - round_ * count]
        return numbers

    return between


def _part_of_each(groups: Iterable[Tensor], rank: int, ranks: int) -> Iterator[Tensor]:
    """One rank's part of each group: the same size on all ranks, so that the mean of their means is the mean."""
    for group in groups:
        size = len(group) // ranks
        if not size:
            raise ValueError(
                f"a clean batch of {len(group)} samples cannot be divided among {ranks} processes; "
                "verify more samples, raise clean_batch_size, or start fewer processes"
            )
        yield group[rank * size : (rank + 1) * size]

"""The noisy training set and the clean set, as batches whose order is a function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import tee
from typing import NamedTuple

import torch
from torch import Tensor

from ..runtime.seeds import generator, seeded
from .augmentation import UNCHANGED, Augment
from .batch import Batch
from .source import InputStore, Source, TensorStore

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Samples:
    """Some samples of a source: their positions in it, and the label each is used with."""

    store: InputStore
    index: Tensor
    label: Tensor
    given: Tensor | None = None  # of clean samples: the label each had been given, −1 where unknown
    origin: Source | None = None  # the source: what the samples are called, and what to show of them

    def __len__(self) -> int:
        return len(self.index)

    def at(self, positions: Tensor) -> Samples:
        """The samples at these positions of this selection."""
        given = None if self.given is None else self.given[positions]
        return Samples(self.store, self.index[positions], self.label[positions], given, self.origin)

    def pairs(self) -> tuple[Tensor, Tensor] | None:
        """(given, verified) labels of the samples that carry both, if there are any."""
        if self.given is None or not bool((self.given >= 0).any()):
            return None
        both = self.given >= 0
        return self.given[both], self.label[both]

    def drawing(self, seed: int, purpose: str, *position: int) -> AbstractContextManager[None]:
        """Inside, the items of a Dataset, which may change at random, follow from the seed and the position."""
        if isinstance(self.store, TensorStore):
            return nullcontext()  # nothing is drawn
        return seeded(CPU, seed, purpose, *position)

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
    reviewed: int = 0  # so many of `clean`, the last ones, were chosen for a review: no fair draw of the data
    decided: int = 0  # reviewed samples that have left `train`; without removed ones, for which no clean one stands
    decided_wrong: int = 0  # of these, how many had a wrong label
    rank: int = 0  # of the processes that train together, which one this is for
    ranks: int = 1  # and how many they are

    @property
    def source(self) -> Source:
        """The data set that the training samples come from."""
        assert self.train.origin is not None
        return self.train.origin

    @property
    def unbiased_clean(self) -> Samples | None:
        """The steering clean samples that are a fair draw: what is estimated on chosen ones would be biased. Where
        all were chosen, these have to do."""
        if self.clean is None or self.reviewed in (0, len(self.clean)):
            return self.clean
        return self.clean.at(torch.arange(len(self.clean) - self.reviewed))

    @property
    def pairs(self) -> tuple[Tensor, Tensor] | None:
        """(given, verified) labels of the steering clean samples that carry both. Those of the held-out parts are held
        out too: a matrix counted on them would leak into the numbers told."""
        return None if self.clean is None else self.clean.pairs()

    def steps(self, excluded: Tensor | None = None) -> int:
        """Steps an epoch."""
        return _steps(len(self._kept(excluded)), self.batch_size)

    def batches(self, epoch: int, *, start: int = 0, excluded: Tensor | None = None) -> Iterator[Batch]:
        """One epoch of shuffled training batches, from step `start` on. With several ranks, this one's part of each."""
        order = self._order(epoch, excluded)
        steps = _steps(len(order), self.batch_size)
        dealt = order if self.ranks == 1 else self._dealt(order)
        bounds = [step * self.batch_size for step in range(steps)] if self.ranks == 1 else _even(len(dealt), steps)
        stream = self.train.batches(_between(dealt, [*bounds, len(dealt)], start))
        for step in range(start, steps):
            place = (epoch, step, *self._stream)
            with self.train.drawing(self.seed, "fetch", *place):
                batch = next(stream).to(self.device)
            yield replace(batch, inputs=self.augment.training(batch.inputs, self.seed, "augment", *place))

    def _dealt(self, order: Tensor) -> Tensor:
        """Of these positions those that the rank owns, as many as every rank has: the few more that some own are left
        out of this epoch, others in the next."""
        owner = self.train.index[order] % self.ranks
        return order[owner == self.rank][: int(torch.bincount(owner, minlength=self.ranks).min())]

    def own(self) -> Tensor:
        """The index of the training samples that this rank owns."""
        index = self.train.index
        return index if self.ranks == 1 else index[index % self.ranks == self.rank]

    @property
    def _stream(self) -> tuple[int, ...]:
        """What makes a rank's random numbers its own. The first one draws what a single process would."""
        return (self.rank,) if self.rank else ()

    def clean_batches(self, epoch: int, *, start: int = 0, excluded: Tensor | None = None) -> CleanBatches:
        """An endless iterator over clean batches. Samples that a method has taken out of training serve as the clean
        set when there is none."""
        samples = self.clean
        if samples is None and excluded is not None and len(excluded):
            samples = self.train.at(is_in(self.train.index, excluded.cpu()).nonzero().flatten())
        random = self.augment if self.augment_clean else self.augment.prepared()
        mixture = None if self.clean is None or self.unbiased_clean is self.clean else self._mixture(len(self.clean))
        dealt = (self.rank, self.ranks)
        return CleanBatches(
            samples, self.clean_batch_size, self.seed, epoch, start, self.device, random, mixture, dealt
        )

    def _mixture(self, clean: int) -> Mixture:
        """A reviewed sample stands for itself alone, a drawn one for its share of all that were not reviewed: so mixed,
        the loss of clean batches is that of the whole data, and not of what looked wrong in it."""
        return Mixture(clean - self.reviewed, self.reviewed, self.reviewed / (self.reviewed + len(self.train)))

    def reviewed_batches(self, epoch: int, step: int, steps: int) -> Iterator[Batch]:
        """The batches of reviewed samples that are due at this of the epoch's steps. Like every training sample each is
        visited once an epoch, in batches of their own, evenly among the others. They are few: every rank sees all."""
        if self.clean is None or self.reviewed < 2:  # batch norm cannot take one sample alone
            return
        count = min(-(-self.reviewed // self.batch_size), self.reviewed // 2)
        due = [number for number in range(count) if (number + 1) * steps // (count + 1) == step]
        if not due:
            return
        order = torch.randperm(self.reviewed, generator=generator(self.seed, "reviewed order", epoch))
        groups = (len(self.clean) - self.reviewed + order).tensor_split(count)
        stream = self.clean.batches([groups[number] for number in due])
        for number in due:
            with self.clean.drawing(self.seed, "fetch reviewed", epoch, number):
                batch = next(stream).to(self.device)
            place = ("augment reviewed", epoch, number)
            yield replace(batch, inputs=self.augment.training(batch.inputs, self.seed, *place))

    def in_order(self, samples: Samples | None = None, *, excluded: Tensor | None = None) -> Iterator[Batch]:
        """Training samples (or others) once, in their own order: for passes that measure rather than train. Of training
        samples those that the rank owns."""
        samples = self.train if samples is None else samples
        kept = self._kept(excluded) if samples is self.train else range(len(samples))
        if samples is self.train and self.ranks > 1:
            places = torch.arange(len(samples)) if isinstance(kept, range) else kept
            kept = places[self.train.index[places] % self.ranks == self.rank]
        size = 4 * self.batch_size
        stream = samples.batches(_in_pieces(kept, size))
        for step in range(-(-len(kept) // size)):
            with samples.drawing(self.seed, "fetch in order", step):
                batch = next(stream).to(self.device)
            yield replace(batch, inputs=self.augment.measuring(batch.inputs))

    def _order(self, epoch: int, excluded: Tensor | None) -> Tensor:
        kept = self._kept(excluded)
        order = torch.randperm(len(kept), generator=generator(self.seed, "order", epoch))
        return order if isinstance(kept, range) else kept[order]

    def _kept(self, excluded: Tensor | None) -> Tensor | range:
        """Positions of the training samples that are not excluded."""
        if excluded is None or not len(excluded):
            return range(len(self.train))
        return (~is_in(self.train.index, excluded.cpu())).nonzero().flatten()


class Mixture(NamedTuple):
    """Clean samples of two kinds, one after the other."""

    drawn: int
    reviewed: int
    share: float  # of the reviewed ones in a batch


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
        mixture: Mixture | None = None,
        dealt: tuple[int, int] = (0, 1),
    ) -> None:
        self.mixture = mixture
        self.rank, self.ranks = dealt
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
            if self.mixture is None:
                groups = _clean_groups(len(self.samples), self.size, self.seed, self.epoch, self.position)
            else:
                groups = _mixed_groups(self.mixture, self.size, self.seed, self.epoch, self.position)
            self._stream = self.samples.batches(_part_of_each(groups, self.rank, self.ranks))
        place = (self.epoch, self.position, *([self.rank] if self.rank else []))
        with self.samples.drawing(self.seed, "fetch clean", *place):
            batch = next(self._stream).to(self.device)
        self.position += 1
        return replace(batch, inputs=self.augment.training(batch.inputs, self.seed, "augment clean", *place))


def _clean_groups(count: int, size: int, seed: int, epoch: int, position: int) -> Iterator[Tensor]:
    # A function, not a method: a stream that held on to its CleanBatches would keep its worker processes alive.
    size = min(size, count)
    while True:
        round_, within = divmod(position, count // size)
        order = torch.randperm(count, generator=generator(seed, "clean order", epoch, round_))
        yield order[within * size : (within + 1) * size]
        position += 1


def _part_of_each(groups: Iterable[Tensor], rank: int, ranks: int) -> Iterator[Tensor]:
    """One rank's part of each group: equally many for all, so that a mean of their means is the mean."""
    for group in groups:
        each = len(group) // ranks
        if not each:
            raise ValueError(
                f"a clean batch of {len(group)} samples cannot be divided among {ranks} processes; "
                "verify more samples, raise clean_batch_size, or start fewer processes"
            )
        yield group[rank * each : (rank + 1) * each]


def _mixed_groups(mixture: Mixture, size: int, seed: int, epoch: int, position: int) -> Iterator[Tensor]:
    size = min(size, mixture.drawn + mixture.reviewed)
    drawn, reviewed = (
        _endless(seed, epoch, *kind) for kind in (("drawn", mixture.drawn), ("reviewed", mixture.reviewed))
    )
    while True:
        # A part of a sample a batch becomes a whole one now and then; all follows from the position.
        before, after = (int(batches * size * mixture.share) for batches in (position, position + 1))
        chosen = [mixture.drawn + place for place in reviewed(before, after)]
        chosen += drawn(position * size - before, (position + 1) * size - after)
        yield torch.tensor(chosen)
        position += 1


def _endless(seed: int, epoch: int, kind: str, count: int) -> Callable[[int, int], list[int]]:
    """Places of an endless series of shuffles, from one number to another."""

    def between(start: int, stop: int) -> list[int]:
        found: list[int] = []
        for round_ in range(start // count, -(-stop // count)):
            order = torch.randperm(count, generator=generator(seed, f"{kind} clean order", epoch, round_)).tolist()
            found += order[max(0, start - round_ * count) : stop - round_ * count]
        return found

    return between


def is_in(index: Tensor, some: Tensor) -> Tensor:
    """Which of these indices are among some others. By a table, not by sorting: a fraction of the time and memory."""
    table = torch.zeros(int(max(index.max(), some.max())) + 1, dtype=torch.bool)
    table[some] = True
    return table[index]


def _steps(count: int, size: int) -> int:
    """How many batches. A single left-over sample joins the last one: batch norm cannot take it alone."""
    steps = -(-count // size)
    return steps - 1 if steps > 1 and count == (steps - 1) * size + 1 else steps


def _even(count: int, parts: int) -> list[int]:
    """Where each of so many nearly equal parts begins."""
    each, more = divmod(count, parts)
    return [part * each + min(part, more) for part in range(parts)]


def _between(order: Tensor, bounds: list[int], start: int) -> Iterator[Tensor]:
    """The parts of an order, from one of them on. One at a time: as views, all of a long epoch would fill memory."""
    for part in range(start, len(bounds) - 1):
        yield order[bounds[part] : bounds[part + 1]]


def _in_pieces(positions: Tensor | range, size: int) -> Iterator[Tensor]:
    for start in range(0, len(positions), size):
        piece = positions[start : start + size]
        yield torch.arange(piece.start, piece.stop) if isinstance(piece, range) else piece

"""The noisy training set and the clean set, as batches whose order is a function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from ..runtime.seeds import generator
from .augmentation import UNCHANGED, Augment
from .batch import Batch
from .class_balance import balanced_order
from .clean_batches import CleanBatches, Mixture
from .samples import CPU, Samples
from .source import Source
from .weighted_order import weighted_order


@dataclass(frozen=True)
class Splits:
    """What training sees: `train` with given labels, the clean parts with verified ones. There is no test set here."""

    train: Samples
    clean: Samples | None  # meta: the part whose gradient moves the labels
    select: Samples | None  # for choosing among epochs and settings
    report: Samples | None  # for the reported numbers
    batch_size: int = 128
    clean_batch_size: int = 128
    seed: int = 0
    device: torch.device = CPU
    augment: Augment = UNCHANGED
    augment_clean: bool = False  # whether clean batches are augmented too
    class_balance: bool = False  # whether given classes are equally frequent in training batches
    weights: Tensor | None = None  # (samples of the source,) how often each is drawn, relative to the others
    reviewed: int = 0  # the last samples of `clean` that were chosen for review, so they are a biased draw
    decided: int = 0  # reviewed samples that have left `train`, without those that were removed altogether
    decided_wrong: int = 0  # how many of them had a wrong label
    rank: int = 0  # of this process
    ranks: int = 1  # the number of processes

    @property
    def source(self) -> Source:
        """The data set that the training samples come from."""
        assert self.train.origin is not None
        return self.train.origin

    @property
    def drawn_clean(self) -> Samples | None:
        """The meta samples that are an unbiased draw, all but the reviewed ones; None if there are none."""
        if self.clean is None or not self.reviewed:
            return self.clean
        drawn = len(self.clean) - self.reviewed
        return self.clean.at(torch.arange(drawn)) if drawn else None

    @property
    def reviewed_clean(self) -> Samples | None:
        """The meta samples that were chosen for review; None if there are none."""
        if self.clean is None or not self.reviewed:
            return None
        return self.clean.at(torch.arange(len(self.clean) - self.reviewed, len(self.clean)))

    @property
    def unbiased_clean(self) -> Samples | None:
        """The meta samples to estimate on: those that are an unbiased draw. If all were chosen for review, all."""
        drawn = self.drawn_clean
        return self.clean if drawn is None else drawn

    @property
    def drawn_parts(self) -> list[Samples]:
        """The clean samples to estimate on, and those held out."""
        return [part for part in (self.unbiased_clean, self.select, self.report) if part is not None and len(part)]

    @property
    def pairs(self) -> tuple[Tensor, Tensor] | None:
        """(given, verified) labels of the meta samples that have both. Those of the other clean parts are held out: a
        transition matrix counted on them would leak into the reported numbers."""
        return None if self.clean is None else self.clean.pairs()

    def steps(self, excluded: Tensor | None = None) -> int:
        """Steps per epoch."""
        return _steps(len(self._kept(excluded)), self.batch_size)

    def batches(self, epoch: int, *, start: int = 0, excluded: Tensor | None = None) -> Iterator[Batch]:
        """One epoch of shuffled training batches, starting with step `start`. With several ranks, this one's part of
        each."""
        order = self._order(epoch, excluded)
        steps = _steps(len(order), self.batch_size)
        own = order if self.ranks == 1 else self._own_part(order)
        bounds = [step * self.batch_size for step in range(steps)] if self.ranks == 1 else _even(len(own), steps)
        bounds.append(len(own))
        if self.class_balance or self.weights is not None:
            own = self._drawn(order, bounds, epoch)
        batches = self.train.batches(_between(own, bounds, start))
        for step in range(start, steps):
            position = (epoch, step, *((self.rank,) if self.rank else ()))
            with self.train.seeded(self.seed, "fetch", *position):
                batch = next(batches).to(self.device)
            if self.augment is not UNCHANGED:
                batch = replace(batch, inputs=self.augment.training(batch.inputs, self.seed, "augment", *position))
            yield batch

    def own(self) -> Tensor:
        """The index of the training samples that this rank owns."""
        index = self.train.index
        return index if self.ranks == 1 else index[index % self.ranks == self.rank]

    def clean_batches(self, epoch: int, *, start: int = 0, excluded: Tensor | None = None) -> CleanBatches:
        """An endless iterator over clean batches. Without a clean set, samples that a method has excluded from training
        take its place."""
        samples = self.clean
        if samples is None and excluded is not None and len(excluded):
            samples = self.train.at(is_in(self.train.index, excluded.cpu()).nonzero().flatten())
        return CleanBatches(
            samples,
            self.clean_batch_size,
            self.seed,
            epoch,
            start,
            self.device,
            self.augment if self.augment_clean else self.augment.prepared(),
            self._mixture(),
            self.rank,
            self.ranks,
        )

    def _mixture(self) -> Mixture | None:
        """A reviewed sample represents only itself, a drawn one its share of all samples that were not reviewed. Mixed
        in this proportion, the loss of clean batches estimates that of the whole data rather than of suspects."""
        drawn = self.drawn_clean
        if drawn is None or drawn is self.clean:
            return None
        return Mixture(len(drawn), self.reviewed, self.reviewed / (self.reviewed + len(self.train)))

    def reviewed_batches(self, epoch: int, step: int, steps: int) -> Iterator[Batch]:
        """The batches of reviewed samples that are due at this step. Like every training sample, each is visited once
        per epoch, in separate batches spread evenly over the epoch. They are few: every rank sees all."""
        reviewed = self.reviewed_clean
        if reviewed is None or len(reviewed) < 2:  # batch norm cannot take a single sample
            return
        count = min(-(-len(reviewed) // self.batch_size), len(reviewed) // 2)
        due = [number for number in range(count) if (number + 1) * steps // (count + 1) == step]
        if not due:
            return
        order = torch.randperm(len(reviewed), generator=generator(self.seed, "reviewed order", epoch))
        groups = order.tensor_split(count)
        batches = reviewed.batches([groups[number] for number in due])
        for number in due:
            with reviewed.seeded(self.seed, "fetch reviewed", epoch, number):
                batch = next(batches).to(self.device)
            inputs = self.augment.training(batch.inputs, self.seed, "augment reviewed", epoch, number)
            yield replace(batch, inputs=inputs)

    def in_order(self, samples: Samples | None = None, *, excluded: Tensor | None = None) -> Iterator[Batch]:
        """The training samples that this rank owns (or all of other samples) once, unshuffled and without random
        augmentation, for evaluation."""
        samples = self.train if samples is None else samples
        kept = self._kept(excluded) if samples is self.train else range(len(samples))
        if samples is self.train and self.ranks > 1:
            positions = torch.arange(len(samples)) if isinstance(kept, range) else kept
            kept = positions[self.train.index[positions] % self.ranks == self.rank]
        size = 4 * self.batch_size
        batches = samples.batches(_chunks(kept, size))
        for step in range(-(-len(kept) // size)):
            with samples.seeded(self.seed, "fetch in order", step):
                batch = next(batches).to(self.device)
            yield replace(batch, inputs=self.augment.measuring(batch.inputs))

    def _order(self, epoch: int, excluded: Tensor | None) -> Tensor:
        kept = self._kept(excluded)
        order = torch.randperm(len(kept), generator=generator(self.seed, "order", epoch))
        return order if isinstance(kept, range) else kept[order]

    def _drawn(self, order: Tensor, bounds: list[int], epoch: int) -> Tensor:
        """In place of this rank's part of an order: as many positions that it owns, equally many of each given class or
        by weight. Of those that it owns beyond an even split, which the order leaves out, any may be drawn."""
        own = order.sort().values
        own = own if self.ranks == 1 else own[self.train.index[own] % self.ranks == self.rank]
        sizes = [end - begin for begin, end in pairwise(bounds)]
        random = generator(self.seed, "balanced order", epoch, self.rank)
        if self.weights is not None:
            return own[weighted_order(self.weights[self.train.index[own]], sizes, random)]
        return own[balanced_order(self.train.label[own], sizes, random)]

    def _own_part(self, order: Tensor) -> Tensor:
        """The positions that this rank owns, as many on every rank: what some ranks own beyond that sits out this
        epoch."""
        owner = self.train.index[order] % self.ranks
        return order[owner == self.rank][: int(torch.bincount(owner, minlength=self.ranks).min())]

    def _kept(self, excluded: Tensor | None) -> Tensor | range:
        """Positions of the training samples that are not excluded."""
        if excluded is None or not len(excluded):
            return range(len(self.train))
        return (~is_in(self.train.index, excluded.cpu())).nonzero().flatten()


def is_in(index: Tensor, some: Tensor) -> Tensor:
    """torch.isin for indices, by a lookup table instead of sorting: a fraction of the time and memory."""
    table = torch.zeros(int(max(index.max(), some.max())) + 1, dtype=torch.bool)
    table[some] = True
    return table[index]


def _steps(count: int, size: int) -> int:
    """The number of batches. A single left-over sample joins the last batch: batch norm cannot take it alone."""
    steps = -(-count // size)
    return steps - 1 if steps > 1 and count == (steps - 1) * size + 1 else steps


def _even(count: int, parts: int) -> list[int]:
    """Where each of `parts` nearly equal parts begins."""
    size, more = divmod(count, parts)
    return [part * size + min(part, more) for part in range(parts)]


def _between(order: Tensor, bounds: list[int], start: int) -> Iterator[Tensor]:
    """The parts of an order, lazily: all views of a long epoch at once would fill memory."""
    for part in range(start, len(bounds) - 1):
        yield order[bounds[part] : bounds[part + 1]]


def _chunks(positions: Tensor | range, size: int) -> Iterator[Tensor]:
    for start in range(0, len(positions), size):
        chunk = positions[start : start + size]
        yield torch.arange(chunk.start, chunk.stop) if isinstance(chunk, range) else chunk

"""The noisy training set and the clean set, as batches whose order is a function of (seed, epoch)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import tee

import torch
from torch import Tensor

from .augment import UNCHANGED, Augment
from .batch import Batch
from .seeds import derive, generator, numpy_generator, seeded
from .source import InputStore, Source, TensorStore, leaves

log = logging.getLogger("mslg")

SMALL = 200  # clean samples: with fewer, all of them are needed for the label learning and none is held out
CPU = torch.device("cpu")
FEW = 20  # pairs that agree by chance
PARTS = (0.6, 0.2, 0.2)  # meta, select, report
FAR = 0.25  # total variation distance between class shares from which a clean set is called unlike the noisy one


@dataclass(frozen=True)
class Samples:
    """Some samples of a source: their positions in it, and the label each is used with."""

    store: InputStore
    index: Tensor
    label: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def at(self, positions: Tensor) -> Samples:
        """The samples at these positions of this selection."""
        return Samples(self.store, self.index[positions], self.label[positions])

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
    pairs: tuple[Tensor, Tensor] | None = None  # (given, verified) labels of clean samples that carry both
    batch_size: int = 128
    clean_batch_size: int = 128
    seed: int = 0
    device: torch.device = CPU
    augment: Augment = UNCHANGED
    augment_clean: bool = False  # whether clean batches are changed at random too

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


def split(
    noisy: Source,
    clean: Source | int | None,
    *,
    hold_out: bool = True,
    batch_size: int = 128,
    clean_batch_size: int | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    augment: Augment = UNCHANGED,
    augment_clean: bool = False,
) -> Splits:
    """Training and clean parts. `clean` is a source with verified labels, a number of verified samples to take out of
    the noisy source (class-balanced), or None. With `hold_out`, 200 clean samples or more are divided 60/20/20 into
    meta, select and report parts; fewer all serve the label learning."""
    if batch_size < 2:
        raise ValueError(f"a batch size of {batch_size} is too small; at least 2 samples are needed in a batch")
    train = Samples(noisy.store, torch.arange(len(noisy)), noisy.label)
    verified: Samples | None = None
    pairs, paired = None, None  # labels of doubly labelled samples, and where these are in the clean set
    if isinstance(clean, int):
        chosen = _take_verified(noisy, clean, seed)
        labels = _verified_labels(noisy)[chosen]
        pairs, paired = (noisy.label[chosen], labels), chosen
        verified = Samples(noisy.store, chosen, labels)
        train = train.at(_others(len(noisy), chosen))
    elif clean is not None:
        check_clean(clean, noisy)
        train, pairs, paired = _same_ids_to_clean(noisy, clean, train)
        _refuse_same_content(noisy, clean, train)
        verified = Samples(clean.store, torch.arange(len(clean)), clean.label)
    if pairs is not None and len(pairs[0]) >= FEW and torch.equal(*pairs) and not _all_verified(noisy):
        # Verification that only confirms does not tell how labels go wrong: a matrix counted on it is the identity.
        log.warning(
            "all %d samples with a given and a verified label agree; the noise cannot be counted on them", len(pairs[0])
        )
        pairs = None
    check_train(train, noisy.classes)
    select = report = None
    if verified is not None and hold_out:
        steering, select, report = _divide(verified, len(noisy.classes), seed)
        if pairs is not None and paired is not None:
            # Pairs of the held-out parts are held out too: a matrix counted on them would leak into the numbers told.
            kept = torch.isin(paired, steering.index)
            pairs = (pairs[0][kept], pairs[1][kept])
        verified = steering
    return Splits(
        train,
        verified,
        select,
        report,
        pairs=pairs,
        batch_size=batch_size,
        clean_batch_size=clean_batch_size or batch_size,
        seed=seed,
        device=torch.device(device),
        augment=augment,
        augment_clean=augment_clean,
    )


def check_train(train: Samples, classes: tuple[str, ...]) -> None:
    """A training set must have samples of at least two classes."""
    if len(train) < 2:
        raise ValueError(f"{len(train)} training samples are left; at least 2 are needed")
    present = train.label.unique()
    if len(present) < 2:
        raise ValueError(
            f"all {len(train)} training samples have the label '{classes[int(present[0])]}'; "
            "a classifier needs at least two classes: check the label column"
        )


def check_clean(clean: Source, noisy: Source) -> None:
    """A clean set must not be empty; one that lacks a class, or has other class shares, gets a warning."""
    if len(clean) == 0:
        raise ValueError('the clean set is empty; give at least a few verified samples a class, or clean="auto"')
    if clean.classes != noisy.classes:
        extra, lacking = (
            ", ".join(sorted(set(left) - set(right))) or "none"
            for left, right in ((clean.classes, noisy.classes), (noisy.classes, clean.classes))
        )
        raise ValueError(
            "the clean set and the noisy set need the same classes in the same order; "
            f"only in the clean set: {extra}; only in the noisy set: {lacking}"
        )
    missing = sorted(set(range(len(noisy.classes))) - set(clean.label.tolist()))
    if missing:
        names = ", ".join(noisy.classes[c] for c in missing)
        log.warning("the clean set has no sample of: %s. Labels cannot be learned towards a class it lacks.", names)
    _compare_shares(clean.label, noisy.label, noisy.classes)


def _compare_shares(clean: Tensor, noisy: Tensor, classes: tuple[str, ...]) -> None:
    """Warn when the clean set's class shares are further from the noisy set's than chance and taste allow."""
    there, here = (torch.bincount(label, minlength=len(classes)).double() / len(label) for label in (clean, noisy))
    distance = float((there - here).abs().sum() / 2)
    # What a fair draw of this size differs by on average: few samples of many classes are never in proportion.
    chance = float((here * (1 - here) / (2 * torch.pi * len(clean))).sqrt().sum())
    if distance <= FAR + chance:
        return
    worst = int((there - here).abs().argmax())
    log.warning(
        "the clean set's class shares differ from the noisy set's by %.0f %% (most of all '%s': %.0f %% of the clean, "
        "%.0f %% of the noisy labels). The labels learned lean towards the clean set's shares: draw it in proportion "
        "if these are not the true ones, and read the macro accuracy.",
        *(100 * distance, classes[worst], 100 * there[worst], 100 * here[worst]),
    )


def clean_from_test(test: Source, count: int, kept: int | None, seed: int) -> tuple[Source, Source]:
    """A clean set cut from the test set, and what is left of it (or `kept` samples of that): the paper's protocol, for
    comparison with its numbers. Both are class-balanced."""
    rest = len(test) - count if kept is None else kept
    if count < 1 or rest < 1 or count + rest > len(test):
        raise ValueError(
            f"{count} clean and {rest} test samples were asked for out of a test set of {len(test)}; "
            f"together they may be at most {len(test)}"
        )
    classes = len(test.classes)
    chosen = balanced(test.label, count, classes, seed)
    others = _others(len(test), chosen)
    tested = others[balanced(test.label[others], rest, classes, seed)]
    return test.at(chosen), test.at(tested)


def test_from_train(source: Source, count: int, seed: int) -> tuple[Source, Source]:
    """The training samples without `count` verified ones, and these as a test set: settings are chosen on it, so that
    the real test set stays unseen."""
    labels = _verified_labels(source)
    if not 0 < count < int((labels >= 0).sum()):
        raise ValueError(f"{count} test samples were asked for; from 1 to {int((labels >= 0).sum()) - 1} are possible")
    chosen = balanced(labels, count, len(source.classes), derive(seed, "test from train"))
    test = source.at(chosen)
    return source.at(_others(len(source), chosen)), replace(test, label=labels[chosen], true_label=None)


def _all_verified(source: Source) -> bool:
    """Samples taken out of such data are a fair draw: if all their labels are right, nearly all labels are."""
    return source.verified_label is not None and bool((source.verified_label >= 0).all())


def _verified_labels(source: Source) -> Tensor:
    if source.verified_label is not None:
        return source.verified_label
    raise ValueError(
        "a number of clean samples was asked for, but the data says nowhere which labels are verified; "
        'pass a separate clean set, add verified labels (-1 where unknown), or use clean="auto"'
    )


def _take_verified(source: Source, count: int, seed: int) -> Tensor:
    labels = _verified_labels(source)
    available = int((labels >= 0).sum())
    if not 0 < count <= available:
        raise ValueError(f"{count} clean samples were asked for; between 1 and {available} are possible here")
    if count < available < len(source):
        log.info(
            "%d more samples are verified and stay in training with their given labels; %d would use all",
            available - count,
            available,
        )
    return balanced(labels, count, len(source.classes), seed)


def balanced(labels: Tensor, count: int, classes: int, seed: int) -> Tensor:
    """Positions of `count` samples, spread over the classes as evenly as the data allows. Labels of −1 are not used."""
    random = numpy_generator(seed, "balanced choice")
    queues = [random.permutation((labels == c).nonzero().flatten().numpy()) for c in range(classes)]
    # Round after round, one sample of every class that still has some; the last round takes random classes.
    chosen: list[int] = []
    depth = 0
    while len(chosen) < count:
        layer = [int(queue[depth]) for queue in queues if len(queue) > depth]
        if not layer:
            break
        chosen += random.permutation(layer).tolist()[: count - len(chosen)]
        depth += 1
    return torch.tensor(sorted(chosen), dtype=torch.int64)


def _others(count: int, chosen: Tensor) -> Tensor:
    keep = torch.ones(count, dtype=torch.bool)
    keep[chosen] = False
    return keep.nonzero().flatten()


def _divide(verified: Samples, classes: int, seed: int) -> tuple[Samples, Samples | None, Samples | None]:
    if len(verified) < SMALL:
        return verified, None, None
    rest = torch.arange(len(verified))
    parts = []
    for share in PARTS[1:]:
        picked = rest[balanced(verified.label[rest], round(share * len(verified)), classes, seed)]
        parts.append(verified.at(picked))
        rest = rest[~torch.isin(rest, picked)]
    return verified.at(rest), parts[0], parts[1]


def _same_ids_to_clean(
    noisy: Source, clean: Source, train: Samples
) -> tuple[Samples, tuple[Tensor, Tensor] | None, Tensor | None]:
    """A sample that is in both sets by id leaves the training set and keeps both its labels."""
    if not (noisy.ids_given and clean.ids_given):
        return train, None, None
    place = {name: position for position, name in enumerate(noisy.ids)}
    both = [(place[name], position) for position, name in enumerate(clean.ids) if name in place]
    if not both:
        return train, None, None
    here = torch.tensor([a for a, _ in both])
    there = torch.tensor([b for _, b in both])
    log.info("%d samples are in both sets (by id): moved to the clean set, with both their labels", len(both))
    return train.at(_others(len(noisy), here)), (noisy.label[here], clean.label[there]), there


def _refuse_same_content(noisy: Source, clean: Source, train: Samples) -> None:
    if not isinstance(noisy.store, TensorStore) or not isinstance(clean.store, TensorStore):
        return  # lazily read inputs are compared by `mslg check`
    seen = {key: position for position, key in zip(train.index.tolist(), _content(noisy.store, train.index))}
    for position, key in enumerate(_content(clean.store, torch.arange(len(clean)))):
        if key in seen:
            raise ValueError(
                f"sample '{clean.ids[position]}' of the clean set has the same content as sample "
                f"'{noisy.ids[seen[key]]}' of the noisy set; the clean set must not be part of the training data: "
                "remove it there, or give both the same id and it is moved for you"
            )


def _content(store: TensorStore, index: Tensor) -> Iterator[bytes]:
    tensors = [tensor[index].reshape(len(index), -1).contiguous() for tensor in leaves(store.tensors)]
    for row in zip(*tensors):
        digest = hashlib.blake2b(digest_size=12)
        for part in row:
            digest.update(part.numpy().tobytes())
        yield digest.digest()

"""How samples are divided: a clean set out of the data or beside it, its parts, and what must not be in two of them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..runtime.distributed import rank, ranks
from ..runtime.seeds import derive, numpy_generator
from .augmentation import UNCHANGED, Augment
from .source import Source, TensorStore, Worded, leaves
from .splits import Samples, Splits

log = logging.getLogger("mslg")

SMALL = 200  # clean samples: with fewer, all of them are needed for the label learning and none is held out
PIECE = 65_536  # samples that are compared at a time
FEW = 20  # pairs that agree by chance
PARTS = (0.6, 0.2, 0.2)  # meta, select, report
FAR = 0.25  # total variation distance between class shares from which a clean set is called unlike the noisy one


def make_splits(
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
    train = Samples(noisy.store, torch.arange(len(noisy)), noisy.label, origin=noisy)
    verified: Samples | None = None
    if isinstance(clean, int):
        chosen = _take_verified(noisy, clean, seed)
        labels = _verified_labels(noisy)[chosen]
        verified = Samples(noisy.store, chosen, labels, noisy.label[chosen], noisy)
        train = train.at(_others(len(noisy), chosen))
    elif clean is not None:
        check_clean(clean, noisy)
        train, given = _same_ids_to_clean(noisy, clean, train)
        _refuse_same_content(noisy, clean, train)
        verified = Samples(clean.store, torch.arange(len(clean)), clean.label, given, clean)
    pairs = None if verified is None else verified.pairs()
    if verified and pairs and len(pairs[0]) >= FEW and torch.equal(*pairs) and not _all_verified(noisy):
        # Verification that only confirms does not tell how labels go wrong: a matrix counted on it is the identity.
        log.warning(
            "all %d samples with a given and a verified label agree; the noise cannot be counted on them", len(pairs[0])
        )
        verified = replace(verified, given=None)
    check_train(train, noisy.classes)
    select = report = None
    if verified is not None and hold_out:
        verified, select, report = _divide(verified, len(noisy.classes), seed)
    if batch_size < 2 * ranks():
        raise ValueError(f"batch_size is {batch_size}; {ranks()} processes need at least 2 samples each a step")
    return Splits(
        train,
        verified,
        select,
        report,
        batch_size=batch_size,
        clean_batch_size=clean_batch_size or batch_size,
        seed=seed,
        device=torch.device(device),
        augment=augment,
        augment_clean=augment_clean,
        rank=rank(),
        ranks=ranks(),
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


def held_out_of_train(source: Source, count: int, seed: int) -> tuple[Source, Source]:
    """The training samples without `count` verified ones, and these as a test set: settings are chosen on it, so that
    the real test set stays unseen."""
    labels = _verified_labels(source, "test")
    if not 0 < count < int((labels >= 0).sum()):
        raise ValueError(f"{count} test samples were asked for; from 1 to {int((labels >= 0).sum()) - 1} are possible")
    chosen = balanced(labels, count, len(source.classes), derive(seed, "test from train"))
    test = source.at(chosen)
    return source.at(_others(len(source), chosen)), replace(test, label=labels[chosen], true_label=None)


def _all_verified(source: Source) -> bool:
    """Samples taken out of such data are a fair draw: if all their labels are right, nearly all labels are."""
    return source.verified_label is not None and bool((source.verified_label >= 0).all())


def _verified_labels(source: Source, part: str = "clean") -> Tensor:
    if source.verified_label is not None:
        return source.verified_label
    otherwise = ', or use clean="auto"' if part == "clean" else ""
    raise ValueError(
        f"a number of {part} samples was asked for, but the data says nowhere which labels are verified; "
        f"pass a separate {part} set, or add verified labels (-1 where unknown){otherwise}"
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
    known = (labels >= 0).nonzero().flatten()
    grouped = known[labels[known].argsort(stable=True)].split(labels[known].bincount(minlength=classes).tolist())
    queues = [random.permutation(members.numpy()) for members in grouped]
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


def _same_ids_to_clean(noisy: Source, clean: Source, train: Samples) -> tuple[Samples, Tensor | None]:
    """A sample that is in both sets by id leaves the training set and keeps both its labels. Returns the training
    samples left, and the label each clean sample had been given (−1 where unknown)."""
    if not (noisy.ids_given and clean.ids_given):
        return train, None
    # The clean set is the small one: its ids are kept, the noisy set's only looked at.
    place = {name: position for position, name in enumerate(clean.ids)}
    both = [(position, place[name]) for position, name in enumerate(noisy.ids) if name in place]
    if not both:
        return train, None
    here = torch.tensor([a for a, _ in both])
    there = torch.tensor([b for _, b in both])
    log.info("%d samples are in both sets (by id): moved to the clean set, with both their labels", len(both))
    given = torch.full((len(clean),), -1).scatter(0, there, noisy.label[here])
    return train.at(_others(len(noisy), here)), given


def _refuse_same_content(noisy: Source, clean: Source, train: Samples) -> None:
    if not all(isinstance(store, TensorStore | Worded) for store in (noisy.store, clean.store)):
        return  # lazily read inputs are compared by `mslg check`
    # The clean set is the small one: its contents are kept, the noisy set's only looked at.
    verified = {key: position for position, key in enumerate(_content(clean.store, torch.arange(len(clean))))}
    for position, key in zip(train.index.tolist(), _content(noisy.store, train.index)):
        if key in verified:
            raise ValueError(
                f"sample '{clean.ids[verified[key]]}' of the clean set has the same content as sample "
                f"'{noisy.ids[position]}' of the noisy set; the clean set must not be part of the training data: "
                "remove it there, or give both the same id and it is moved for you"
            )


def _content(store: Any, index: Tensor) -> Iterator[bytes]:
    if isinstance(store, Worded):
        yield from (store.text(position).encode(errors="replace") for position in index.tolist())
        return
    for piece in index.split(PIECE):  # a copy of a whole set may not fit into memory a second time
        tensors = [tensor[piece].reshape(len(piece), -1).contiguous() for tensor in leaves(store.tensors)]
        for row in zip(*tensors):
            digest = hashlib.blake2b(digest_size=12)
            for part in row:
                digest.update(part.numpy().tobytes())
            yield digest.digest()

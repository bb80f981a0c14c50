"""Split data into training samples and the meta, select and report parts of the clean set."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch
from torch import Tensor

from ..runtime.distributed import rank, ranks
from ..runtime.seeds import derive, numpy_generator
from .augmentation import UNCHANGED, Augment
from .content import contents, has_content, possible_copies
from .samples import Samples
from .source import Source
from .splits import Splits

log = logging.getLogger("mslg")

SMALL = 200  # clean samples: with fewer, all are needed for the meta part and none is held out
FEW = 20  # so few pairs of labels may all agree by chance
PARTS = (0.6, 0.2, 0.2)  # meta, select, report
# A method that predicts clean samples out of fold can measure on those it learns from, and learns more from 200 of them
# than from 120 (docs/methods/cross-fitted.md): it keeps this many before any is held out,
CROSS_FITTED = 600
LEAST_PART = 40  # and parts that are smaller than this would tell nothing.
FAR = 0.25  # total variation distance between class shares above which a warning says that the sets differ


def make_splits(
    noisy: Source,
    clean: Source | int | None,
    *,
    hold_out: bool = True,
    cross_fits: bool = False,
    batch_size: int = 128,
    clean_batch_size: int | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    augment: Augment = UNCHANGED,
    augment_clean: bool = False,
    class_balance: bool = False,
    weights: Tensor | None = None,
) -> Splits:
    """Split the data into training samples and clean parts.

    Args:
        noisy: the data with given labels.
        clean: a source with verified labels, a number of verified samples to take out of `noisy` (class-balanced), or
            None.
        hold_out: whether to split 200 clean samples or more 60/20/20 into meta, select and report parts. Fewer are all
            meta samples.
        cross_fits: whether the method predicts clean samples out of fold. It keeps the first 600 as meta samples.
        batch_size: training samples per step, over all processes.
        clean_batch_size: clean samples per step; `batch_size` by default.
        seed: of every shuffle and random choice.
        device: where batches are moved to.
        augment: transforms for training batches.
        augment_clean: whether clean batches are augmented too.
        class_balance: whether training batches are drawn such that given classes are equally frequent.
        weights: (samples of `noisy`,) how often each sample is drawn, relative to the others.
    """
    if batch_size < 2:
        raise ValueError(f"batch_size is {batch_size}; a batch needs at least 2 samples")
    train = Samples(noisy.store, torch.arange(len(noisy)), noisy.label, origin=noisy)
    verified: Samples | None = None
    if isinstance(clean, int):
        chosen = _take_verified(noisy, clean, seed)
        labels = verified_labels(noisy)[chosen]
        verified = Samples(noisy.store, chosen, labels, noisy.label[chosen], noisy)
        train = train.at(_complement(len(noisy), chosen))
    elif clean is not None:
        check_clean(clean, noisy)
        train, given = _same_ids_to_clean(noisy, clean, train)
        _refuse_duplicates(noisy, clean, train)
        verified = Samples(clean.store, torch.arange(len(clean)), clean.label, given, clean)
    pairs = None if verified is None else verified.pairs()
    if verified and pairs and len(pairs[0]) >= FEW and torch.equal(*pairs) and not _all_verified(noisy):
        # A transition matrix counted on labels that were only ever confirmed is the identity.
        log.warning(
            "the given and verified labels of all %d clean samples agree, so the noise cannot be estimated from them",
            len(pairs[0]),
        )
        verified = replace(verified, given=None)
    check_train(train, noisy.classes)
    select = report = None
    if verified is not None and hold_out:
        verified, select, report = _split(verified, len(noisy.classes), seed, cross_fits=cross_fits)
    if batch_size < 2 * ranks():
        raise ValueError(f"batch_size is {batch_size}; {ranks()} processes need at least 2 samples each per step")
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
        class_balance=class_balance,
        weights=weights,
        rank=rank(),
        ranks=ranks(),
    )


def check_train(train: Samples, classes: tuple[str, ...]) -> None:
    """Raise unless there are training samples of at least two classes."""
    if len(train) < 2:
        raise ValueError(f"{len(train)} training samples are left; at least 2 are needed")
    present = train.label.unique()
    if len(present) < 2:
        raise ValueError(
            f"all {len(train)} training samples have the label '{classes[int(present[0])]}'; "
            "a classifier needs at least two classes: check the label column"
        )


def check_clean(clean: Source, noisy: Source) -> None:
    """Raise if a clean set is empty or has other classes; warn if it lacks a class or has other class shares."""
    if len(clean) == 0:
        raise ValueError('the clean set is empty; pass at least a few verified samples per class, or clean="auto"')
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
        log.warning("the clean set has no sample of: %s. Few labels can be corrected to these classes.", names)
    _compare_shares(clean.label, noisy.label, noisy.classes)


def _compare_shares(clean: Tensor, noisy: Tensor, classes: tuple[str, ...]) -> None:
    """Warn if the clean set's class shares differ from the noisy set's by more than FAR and chance."""
    clean_share, noisy_share = (
        torch.bincount(label, minlength=len(classes)).double() / len(label) for label in (clean, noisy)
    )
    distance = float((clean_share - noisy_share).abs().sum() / 2)
    # The expected distance of an unbiased draw of this size: few samples of many classes are never in proportion.
    chance = float((noisy_share * (1 - noisy_share) / (2 * torch.pi * len(clean))).sqrt().sum())
    if distance <= FAR + chance:
        return
    worst = int((clean_share - noisy_share).abs().argmax())
    log.warning(
        "the clean set's class shares differ from the noisy set's by %.0f %% (most of all '%s': %.0f %% of the clean, "
        "%.0f %% of the noisy labels). Learned labels are biased towards the clean set's shares: draw it in proportion "
        "if these are not the true ones, and look at the macro accuracy.",
        *(100 * distance, classes[worst], 100 * clean_share[worst], 100 * noisy_share[worst]),
    )


def clean_from_test(test: Source, count: int, kept: int | None, seed: int) -> tuple[Source, Source]:
    """Take a clean set out of the test set, class-balanced: the paper's protocol, for comparison with its numbers.

    Returns:
        The clean set, and `kept` of the remaining test samples (all of them by default).
    """
    rest = len(test) - count if kept is None else kept
    if count < 1 or rest < 1 or count + rest > len(test):
        raise ValueError(
            f"{count} clean and {rest} test samples were requested from a test set of {len(test)}; "
            f"together they may be at most {len(test)}"
        )
    classes = len(test.classes)
    chosen = balanced(test.label, count, classes, seed)
    others = _complement(len(test), chosen)
    tested = others[balanced(test.label[others], rest, classes, seed)]
    return test.at(chosen), test.at(tested)


def held_out_of_train(source: Source, count: int, seed: int) -> tuple[Source, Source]:
    """Hold out `count` verified training samples as a test set for choosing settings, so that the real test set stays
    unseen.

    Returns:
        The remaining training samples, and the held-out ones.
    """
    labels = verified_labels(source, "test")
    if not 0 < count < int((labels >= 0).sum()):
        raise ValueError(f"{count} test samples were requested; from 1 to {int((labels >= 0).sum()) - 1} are possible")
    chosen = balanced(labels, count, len(source.classes), derive(seed, "test from train"))
    test = source.at(chosen)
    return source.at(_complement(len(source), chosen)), replace(test, label=labels[chosen], true_label=None)


def _all_verified(source: Source) -> bool:
    """Samples taken out of such data are an unbiased draw: if all their labels are right, nearly all labels are."""
    return source.verified_label is not None and bool((source.verified_label >= 0).all())


def verified_labels(source: Source, part: str = "clean") -> Tensor:
    """The verified labels, of which a number of samples was asked for."""
    if source.verified_label is not None:
        return source.verified_label
    otherwise = (
        ', check 100 random samples first (mslg start DATA), or pass clean="auto" (--clean auto)'
        if part == "clean"
        else ""
    )
    raise ValueError(
        f"a number of {part} samples was requested, but the data has no verified labels; "
        f"pass a separate {part} set, add verified labels (-1 where unknown){otherwise}"
    )


def _take_verified(source: Source, count: int, seed: int) -> Tensor:
    labels = verified_labels(source)
    available = int((labels >= 0).sum())
    if not 0 < count <= available:
        raise ValueError(f"{count} clean samples were requested; from 1 to {available} are possible")
    if count < available < len(source):
        log.info(
            "%d more verified samples stay in training with their given labels; clean=%d would use all",
            available - count,
            available,
        )
    return balanced(labels, count, len(source.classes), seed)


def balanced(labels: Tensor, count: int, classes: int, seed: int) -> Tensor:
    """Positions of `count` random samples, spread over the classes as evenly as possible. Labels of −1 are skipped."""
    random = numpy_generator(seed, "balanced choice")
    known = (labels >= 0).nonzero().flatten()
    grouped = known[labels[known].argsort(stable=True)].split(labels[known].bincount(minlength=classes).tolist())
    queues = [random.permutation(members.numpy()) for members in grouped]
    # Each round takes one sample of every class that has some left; the last one takes random classes.
    chosen: list[int] = []
    depth = 0
    while len(chosen) < count:
        layer = [int(queue[depth]) for queue in queues if len(queue) > depth]
        if not layer:
            break
        chosen += random.permutation(layer).tolist()[: count - len(chosen)]
        depth += 1
    return torch.tensor(sorted(chosen), dtype=torch.int64)


def _complement(count: int, chosen: Tensor) -> Tensor:
    keep = torch.ones(count, dtype=torch.bool)
    keep[chosen] = False
    return keep.nonzero().flatten()


def _split(
    verified: Samples, classes: int, seed: int, *, cross_fits: bool
) -> tuple[Samples, Samples | None, Samples | None]:
    sizes = [round(share * len(verified)) for share in PARTS[1:]]
    if cross_fits:
        sizes = [min(size, (len(verified) - CROSS_FITTED) // 2) for size in sizes]
    if len(verified) < SMALL or min(sizes) < LEAST_PART:
        return verified, None, None
    rest = torch.arange(len(verified))
    parts = []
    for size in sizes:
        picked = rest[balanced(verified.label[rest], size, classes, seed)]
        parts.append(verified.at(picked))
        rest = rest[~torch.isin(rest, picked)]
    return verified.at(rest), parts[0], parts[1]


def _same_ids_to_clean(noisy: Source, clean: Source, train: Samples) -> tuple[Samples, Tensor | None]:
    """Remove samples from training that are also in the clean set by id.

    Returns:
        The remaining training samples, and the label each clean sample was given (−1 where unknown).
    """
    if not (noisy.ids_given and clean.ids_given):
        return train, None
    # The clean set is the small one, so the lookup table holds its ids.
    in_clean = {name: position for position, name in enumerate(clean.ids)}
    shared = {position: in_clean[name] for position, name in enumerate(noisy.ids) if name in in_clean}
    if not shared:
        return train, None
    log.info("%d samples are in both sets: moved to the clean set, with given and verified labels", len(shared))
    moved = torch.tensor(list(shared))
    given = torch.full((len(clean),), -1).scatter(0, torch.tensor(list(shared.values())), noisy.label[moved])
    return train.at(_complement(len(noisy), moved)), given


def _refuse_duplicates(noisy: Source, clean: Source, train: Samples) -> None:
    """Raise if a clean sample has the same content as a training sample."""
    if not (has_content(noisy.store) and has_content(clean.store)):
        return  # `mslg check` compares inputs that are read lazily
    index = possible_copies(noisy.store, train.index, clean.store)
    if not len(index):
        return
    verified = {key: position for position, key in enumerate(contents(clean.store, torch.arange(len(clean))))}
    for position, key in zip(index.tolist(), contents(noisy.store, index), strict=True):
        if key in verified:
            raise ValueError(
                f"sample '{clean.ids[verified[key]]}' of the clean set has the same content as sample "
                f"'{noisy.ids[position]}' of the noisy set; the clean set must not be part of the training data: "
                "remove it there, or give both the same id so that it is moved automatically"
            )

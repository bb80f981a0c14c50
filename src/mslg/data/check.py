"""Check a data set before training on it: decode every file, compare every content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from .batch import leaves
from .content import contents, has_content
from .image_stores import ImageStore, MemoryImages, default_workers
from .images import EscapingPath, Unreadable, read
from .make_splits import make_splits
from .readers.bundle import Bundle
from .source import Source
from .stores import TensorStore

CHUNK = 64  # files per job of a worker

Contents = dict[bytes, list[int]]  # the positions of the samples that have a content


class Checked(NamedTuple):
    """What is known about one sample."""

    digest: bytes | None = None  # None: there is nothing to compare
    size: tuple[int, ...] | None = None
    problem: str | None = None


@dataclass
class Findings:
    """What a data set contains, and what is wrong with it. Fatal problems would stop or spoil a run."""

    samples: dict[str, int]
    classes: dict[str, int]
    sizes: dict[str, int]
    corrupt: list[dict[str, str]] = field(default_factory=list)
    duplicates: list[list[str]] = field(default_factory=list)  # groups of ids with the same content
    conflicts: int = 0  # how many of these groups have different labels
    leaks: list[list[str]] = field(default_factory=list)  # (training id, test id) with the same content
    same_ids: list[str] = field(default_factory=list)  # in the clean set too: `fit` moves them there
    same_content: list[list[str]] = field(default_factory=list)  # (id, clean id): `fit` refuses them if in memory
    missing_in_clean: list[str] = field(default_factory=list)
    fatal: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def inspect(
    bundle: Bundle,
    clean: Source | int | None = None,
    *,
    workers: int | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> Findings:
    """Check every sample. `advance` is called with the number of samples checked since the last call."""
    import pandas as pd

    parts = {"train": bundle.train, "test": bundle.test, "clean": clean if isinstance(clean, Source) else None}
    present = {name: source for name, source in parts.items() if source is not None}
    checked = {name: list(_check(source, workers, advance)) for name, source in present.items()}
    train = bundle.train
    counts = np.bincount(train.label.numpy(), minlength=len(train.classes))
    sizes = pd.Series(["×".join(map(str, sample.size)) for sample in checked["train"] if sample.size]).value_counts()
    findings = Findings(
        samples={name: len(source) for name, source in present.items()},
        classes={name: int(count) for name, count in zip(train.classes, counts, strict=True)},
        sizes={str(size): int(count) for size, count in sizes.items()},
        corrupt=[
            {"part": name, "id": source.ids[position], "problem": sample.problem}
            for name, source in present.items()
            for position, sample in enumerate(checked[name])
            if sample.problem
        ],
    )
    by_content = {name: _by_content(checked[name]) for name in present}
    _find_duplicates(findings, train, by_content["train"])
    if bundle.test is not None:
        findings.leaks = _shared(train, by_content["train"], bundle.test, by_content["test"])
    if isinstance(clean, int):
        try:
            make_splits(train, clean)
        except ValueError as error:
            findings.fatal.append(str(error))
    elif clean is not None:
        _compare(findings, train, by_content["train"], clean, by_content["clean"])
    _judge(findings)
    return findings


def _check(source: Source, workers: int | None, advance: Callable[[int], None]) -> Iterator[Checked]:
    store = source.store
    if isinstance(store, ImageStore | MemoryImages):
        inside = store.folder if isinstance(store, ImageStore) and store.confined else None
        paths = [store.path(position) for position in range(len(store))]
        jobs = [(paths[start : start + CHUNK], inside) for start in range(0, len(paths), CHUNK)]
        count = default_workers() if workers is None else workers
        if count == 0 or len(jobs) < 2:
            yield from _advancing(map(_check_files, jobs), advance)
            return
        with ProcessPoolExecutor(count) as pool:
            yield from _advancing(pool.map(_check_files, jobs), advance)
        return
    if has_content(store):
        size = tuple(leaves(store.tensors)[0].shape[1:]) if isinstance(store, TensorStore) else None
        yield from (Checked(content, size) for content in contents(store, torch.arange(len(store))))
    else:
        yield from (Checked() for _ in range(len(store)))
    advance(len(store))


def _advancing(chunks: Iterable[list[Checked]], advance: Callable[[int], None]) -> Iterator[Checked]:
    for chunk in chunks:
        advance(len(chunk))
        yield from chunk


def _check_files(job: tuple[list[Path], Path | None]) -> list[Checked]:
    paths, inside = job
    checked = []
    for path in paths:
        try:
            pixels = read(path, None, 3, inside)
        except EscapingPath as error:
            checked.append(Checked(problem=str(error)))
            continue
        if isinstance(pixels, Unreadable):
            checked.append(Checked(problem=pixels.reason))
        else:
            digest = hashlib.blake2b(path.read_bytes(), digest_size=12).digest()
            checked.append(Checked(digest, (pixels.shape[2], pixels.shape[1])))
    return checked


def _by_content(checked: list[Checked]) -> Contents:
    positions: Contents = {}
    for position, sample in enumerate(checked):
        if sample.digest is not None:
            positions.setdefault(sample.digest, []).append(position)
    return positions


def _find_duplicates(findings: Findings, train: Source, contents: Contents) -> None:
    for positions in contents.values():
        if len(positions) > 1:
            findings.duplicates.append([train.ids[position] for position in positions])
            findings.conflicts += len({int(train.label[position]) for position in positions}) > 1


def _shared(left: Source, left_contents: Contents, right: Source, right_contents: Contents) -> list[list[str]]:
    """The ids of the first sample of each source for every content that both have."""
    return [
        [left.ids[positions[0]], right.ids[right_contents[content][0]]]
        for content, positions in left_contents.items()
        if content in right_contents
    ]


def _compare(
    findings: Findings, train: Source, train_contents: Contents, clean: Source, clean_contents: Contents
) -> None:
    if train.ids_given and clean.ids_given:
        findings.same_ids = sorted(set(train.ids) & set(clean.ids))
    known = set(findings.same_ids)
    pairs = _shared(train, train_contents, clean, clean_contents)
    findings.same_content = [[left, right] for left, right in pairs if not (left == right and left in known)]
    if clean.classes == train.classes:
        counts = np.bincount(clean.label.numpy(), minlength=len(clean.classes))
        findings.missing_in_clean = [name for name, count in zip(clean.classes, counts, strict=True) if not count]
    else:
        findings.fatal.append(
            f"the clean set has the classes {', '.join(clean.classes)}, the data {', '.join(train.classes)}"
        )


def _judge(findings: Findings) -> None:
    present = [name for name, count in findings.classes.items() if count]
    empty = len(findings.classes) - len(present)
    corrupt, same_content, leaks = len(findings.corrupt), len(findings.same_content), len(findings.leaks)
    duplicates, same_ids = len(findings.duplicates), len(findings.same_ids)
    fatal = {
        f"there are samples of {len(present)} class; a classifier needs at least two": len(present) < 2,
        f"{corrupt} images cannot be read: fix them, or skip them: mslg fit --corrupt skip": corrupt,
        f"{same_content} samples are in the clean set under another id: give both the same one": same_content,
        f"{leaks} test samples have the same content as training samples": leaks,
    }
    warnings = {
        f"{empty} classes have no training sample": empty,
        f"{duplicates} contents occur more than once": duplicates,
        f"{findings.conflicts} of these have different labels: at most one of them is right": findings.conflicts,
        f"{same_ids} samples are in both sets: fit moves them to the clean set": same_ids,
        f"the clean set has no sample of: {', '.join(findings.missing_in_clean)}": findings.missing_in_clean,
    }
    findings.fatal += [message for message, condition in fatal.items() if condition]
    findings.warnings += [message for message, condition in warnings.items() if condition]

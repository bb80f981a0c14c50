"""HoldoutEvaluation at all of a data set before it is trained on: every file decoded, every content compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .images import EscapingPath, ImageStore, MemoryImages, Unreadable, default_workers, read
from .make_splits import make_splits
from .readers.bundle import Bundle
from .source import Source, TensorStore, Worded, leaves

CHUNK = 64  # files a worker looks at before it reports


class Seen(NamedTuple):
    """What one sample looks like. No digest: there is nothing to compare."""

    digest: bytes | None
    size: tuple[int, ...] | None
    problem: str | None


@dataclass
class Findings:
    """What there is in a data set, and what is wrong with it. Something fatal would stop or spoil a run."""

    samples: dict[str, int]
    classes: dict[str, int]
    sizes: dict[str, int]
    corrupt: list[dict[str, str]] = field(default_factory=list)
    duplicates: list[list[str]] = field(default_factory=list)  # groups of ids with the same content
    conflicts: int = 0  # groups of these whose labels differ
    leaks: list[list[str]] = field(default_factory=list)  # (training id, test id) with the same content
    same_ids: list[str] = field(default_factory=list)  # in the clean set too: moved there by `fit`
    same_content: list[list[str]] = field(default_factory=list)  # (id, clean id): refused by `fit` if in memory
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
    """Look at every sample. `advance` is told how many have been looked at since the last time."""
    parts = {"train": bundle.train, "test": bundle.test, "clean": clean if isinstance(clean, Source) else None}
    present = {name: source for name, source in parts.items() if source is not None}
    seen = {name: list(_seen(source, workers, advance)) for name, source in present.items()}
    train = bundle.train
    counts = np.bincount(train.label.numpy(), minlength=len(train.classes))
    sizes = pd.Series(["×".join(map(str, found.size)) for found in seen["train"] if found.size]).value_counts()
    findings = Findings(
        samples={name: len(source) for name, source in present.items()},
        classes={name: int(count) for name, count in zip(train.classes, counts)},
        sizes={str(size): int(count) for size, count in sizes.items()},
        corrupt=[
            {"part": name, "id": source.ids[row], "problem": found.problem}
            for name, source in present.items()
            for row, found in enumerate(seen[name])
            if found.problem
        ],
    )
    places = {name: _places(seen[name]) for name in present}
    _duplicates(findings, train, places["train"])
    if bundle.test is not None:
        findings.leaks = _same(train, places["train"], bundle.test, places["test"])
    if isinstance(clean, int):
        try:
            make_splits(train, clean)
        except ValueError as error:
            findings.fatal.append(str(error))
    elif clean is not None:
        _compare(findings, train, places["train"], clean, places["clean"])
    _judge(findings)
    return findings


def _seen(source: Source, workers: int | None, advance: Callable[[int], None]) -> Iterator[Seen]:
    store = source.store
    if isinstance(store, ImageStore | MemoryImages):
        confined = isinstance(store, ImageStore) and store.confined
        paths = [store.path(row) for row in range(len(store))]
        jobs = [
            (paths[start : start + CHUNK], store.folder if confined else None) for start in range(0, len(paths), CHUNK)
        ]
        count = default_workers() if workers is None else workers
        if count == 0 or len(jobs) < 2:
            results: Any = map(_look_at, jobs)
            for chunk in results:
                advance(len(chunk))
                yield from chunk
            return
        with ProcessPoolExecutor(count) as pool:
            for chunk in pool.map(_look_at, jobs):
                advance(len(chunk))
                yield from chunk
    elif isinstance(store, TensorStore):
        tensors = [tensor.reshape(len(store), -1).contiguous().numpy() for tensor in leaves(store.tensors)]
        size = tuple(leaves(store.tensors)[0].shape[1:])
        for row in range(len(store)):
            digest = hashlib.blake2b(digest_size=12)
            for tensor in tensors:
                digest.update(tensor[row].tobytes())
            yield Seen(digest.digest(), size, None)
        advance(len(store))
    elif isinstance(store, Worded):
        yield from (Seen(store.text(row).encode(errors="replace"), None, None) for row in range(len(store)))
        advance(len(store))
    else:
        yield from (Seen(None, None, None) for _ in range(len(store)))
        advance(len(store))


def _look_at(job: tuple[list[Path], Path | None]) -> list[Seen]:
    paths, inside = job
    found = []
    for path in paths:
        try:
            pixels = read(path, None, 3, inside)
        except EscapingPath as error:
            found.append(Seen(None, None, str(error)))
            continue
        if isinstance(pixels, Unreadable):
            found.append(Seen(None, None, pixels.reason))
        else:
            digest = hashlib.blake2b(path.read_bytes(), digest_size=12).digest()
            found.append(Seen(digest, (pixels.shape[2], pixels.shape[1]), None))
    return found


def _places(seen: list[Seen]) -> dict[bytes, list[int]]:
    places: dict[bytes, list[int]] = {}
    for row, found in enumerate(seen):
        if found.digest is not None:
            places.setdefault(found.digest, []).append(row)
    return places


def _duplicates(findings: Findings, train: Source, places: dict[bytes, list[int]]) -> None:
    for rows in places.values():
        if len(rows) > 1:
            findings.duplicates.append([train.ids[row] for row in rows])
            findings.conflicts += len({int(train.label[row]) for row in rows}) > 1


def _same(left: Source, here: dict[bytes, list[int]], right: Source, there: dict[bytes, list[int]]) -> list[list[str]]:
    return [[left.ids[here[key][0]], right.ids[there[key][0]]] for key in here if key in there]


def _compare(
    findings: Findings, train: Source, here: dict[bytes, list[int]], clean: Source, there: dict[bytes, list[int]]
) -> None:
    if train.ids_given and clean.ids_given:
        findings.same_ids = sorted(set(train.ids) & set(clean.ids))
    known = set(findings.same_ids)
    findings.same_content = [
        [left, right] for left, right in _same(train, here, clean, there) if not (left == right and left in known)
    ]
    if clean.classes == train.classes:
        counts = np.bincount(clean.label.numpy(), minlength=len(clean.classes))
        findings.missing_in_clean = [name for name, count in zip(clean.classes, counts) if not count]
    else:
        findings.fatal.append(
            f"the clean set has the classes {', '.join(clean.classes)}, the data {', '.join(train.classes)}"
        )


def _judge(findings: Findings) -> None:
    present = [name for name, count in findings.classes.items() if count]
    empty = len(findings.classes) - len(present)
    for wrong, words in (
        (len(present) < 2, f"there are samples of {len(present)} class; a classifier needs at least two"),
        (
            len(findings.corrupt),
            f"{len(findings.corrupt)} images cannot be read: mend them, or leave them out: mslg fit --corrupt skip",
        ),
        (
            len(findings.same_content),
            f"{len(findings.same_content)} samples are in the clean set under another id: give both the same one",
        ),
        (len(findings.leaks), f"{len(findings.leaks)} test samples have the same content as training samples"),
    ):
        if wrong:
            findings.fatal.append(words)
    for seen, words in (
        (empty, f"{empty} classes have no training sample"),
        (len(findings.duplicates), f"{len(findings.duplicates)} contents are there more than once"),
        (findings.conflicts, f"{findings.conflicts} of these carry different labels: at most one of them is right"),
        (
            len(findings.same_ids),
            f"{len(findings.same_ids)} samples are in both sets by id: fit moves them to the clean one",
        ),
        (len(findings.missing_in_clean), f"the clean set has no sample of: {', '.join(findings.missing_in_clean)}"),
    ):
        if seen:
            findings.warnings.append(words)

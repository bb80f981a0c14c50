"""Open a clean set and match its classes, labels and ids to the training data."""

from __future__ import annotations

import filecmp
import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..registry import UnknownName, unknown
from ..runtime.cells import unescaped
from .image_stores import ImageStore, MemoryImages, frame_of
from .open import open_named
from .readers.bundle import Bundle
from .readers.options import Reading
from .readers.tables import read_csv
from .source import Source
from .texts import vocabulary_of

log = logging.getLogger("mslg")


def open_clean(clean: Any, bundle: Bundle, *, seed: int = 0, root: Any = None, reading: Reading) -> Any:
    """Open a clean set for the bundle's training samples.

    Args:
        clean: the name of one of the bundle's clean sets, a number of samples, "auto", None, or data to open.
        bundle: the data set that is trained on.
        seed, root, reading: as for the data set.

    Returns:
        A source whose labels are verified; a number, "auto" and None are returned unchanged.
    """
    train = bundle.train
    if clean is None or clean == "auto":
        return clean
    if str(clean).isdigit():
        return int(clean)
    if clean in bundle.clean:
        return bundle.clean[clean]
    if (file := decisions_file(Path(str(clean)))) is not None:
        return decided_samples(file, train)
    alike = replace(reading, frame=frame_of(train.store) or reading.frame, vocabulary=vocabulary_of(train.store))
    try:
        source = open_named(str(clean), seed=seed, root=root, reading=alike).train
    except UnknownName as error:
        if not bundle.clean:
            raise
        raise unknown("clean set", clean, [*bundle.clean, "a number", "auto", "a path"]) from error
    return distinct_ids(_verified_only(_with_classes(source, train), str(clean)), train, str(clean))


def decisions_file(path: Path) -> Path | None:
    """The file of decisions that this is, a CSV with the columns id, decision and label, or that the folder of
    `mslg start` has; otherwise None."""
    if (path / "start.json").is_file():
        path = path / "decisions.csv"
        if not path.exists():
            raise FileNotFoundError(f"{path.parent} has no decisions yet; check its samples: mslg review {path.parent}")
    if path.suffix != ".csv" or not path.is_file():
        return None
    return path if {"id", "decision", "label"} <= set(read_csv(path, nrows=0).columns) else None


def decided_samples(path: Path, train: Source) -> Source:
    """The training samples that a decisions file (id, decision, label) gives a verified label. A random check of the
    data becomes its clean set, with given and verified labels."""
    import pandas as pd

    table = read_csv(path, dtype=str, keep_default_na=False)
    table = table.assign(**{key: table[key].map(unescaped) for key in ("id", "label")})
    table = table[table["decision"].isin(("accept", "keep", "relabel"))]
    if not len(table):
        raise ValueError(f"{path} has no decision that verifies a label; check some samples first: mslg start DATA")
    position = pd.Series(np.arange(len(train)), index=pd.Index(train.ids))
    strange = [key for key in table["id"] if key not in position.index]
    unknown_labels = sorted(set(table["label"]) - set(train.classes))
    if strange or unknown_labels:
        what = f"the sample '{strange[0]}'" if strange else f"the class '{unknown_labels[0]}'"
        raise ValueError(f"{path} names {what}, which is not in the data; these decisions are about other data")
    chosen = train.at(torch.tensor(position[table["id"]].to_list()))
    labels = torch.tensor([train.classes.index(label) for label in table["label"]])
    return replace(chosen, label=labels, verified_label=None, true_label=None, ids_given=True)


def distinct_ids(clean: Source, train: Source, name: str) -> Source:
    """Let equal ids mean equal images where both sets are image files.

    Two folders may each have a cat/1.jpg. Where ids were made from paths and the files differ, the clean sample's id is
    prefixed with the name of its folder. A file that the training folder has under another class or name is the same
    sample: it gets the training sample's id.
    """
    import pandas as pd

    if not all(isinstance(source.store, ImageStore | MemoryImages) for source in (clean, train)):
        return clean
    in_clean, in_train = (pd.Series(np.arange(len(source)), index=pd.Index(source.ids)) for source in (clean, train))
    ids = list(clean.ids)
    different = 0
    for key in in_clean.index.intersection(in_train.index):
        files = _path(clean, int(in_clean[key])), _path(train, int(in_train[key]))
        from_paths = all(file.as_posix().endswith(key) for file in files)
        if from_paths and all(file.exists() for file in files) and not filecmp.cmp(*files, shallow=False):
            ids[int(in_clean[key])] = f"{Path(name).stem}/{key}"
            different += 1
    if different:
        log.info("%d ids (paths) occur in both sets for different images: they are kept apart", different)
    moved = _same_files(clean, train, ids)
    if moved:
        log.info(
            "%d images of the clean set are in the data under another class or name: they are the same samples",
            len(moved),
        )
    return replace(clean, ids=tuple(moved.get(position, key) for position, key in enumerate(ids)))


def _with_classes(source: Source, like: Source) -> Source:
    """Number the labels as in the training data: a clean set may lack some classes."""
    if source.classes == like.classes or not set(source.classes) <= set(like.classes):
        return source
    number = torch.tensor([like.classes.index(name) for name in source.classes] + [-1])  # −1 stays −1
    label, verified, true = (
        None if labels is None else number[labels]
        for labels in (source.label, source.verified_label, source.true_label)
    )
    assert label is not None
    return replace(source, classes=like.classes, label=label, verified_label=verified, true_label=true)


def _verified_only(source: Source, name: str) -> Source:
    """Use the verified labels of a clean set, if it has any."""
    if source.verified_label is None:
        return source
    unverified = int((source.verified_label < 0).sum())
    if unverified:
        raise ValueError(
            f"{unverified} of {len(source)} samples of the clean set {name} have no verified label; "
            "remove them, or remove the column if every label is verified"
        )
    return replace(source, label=source.verified_label)


def _same_files(clean: Source, train: Source, ids: list[str]) -> dict[int, str]:
    """The training ids of clean samples whose file is in the training folder too, under any name and class. Without
    them, the folders' labels would always agree, and no noise could be found."""
    by_size: dict[int, list[int]] = {}
    for position in range(len(train)):
        if (file := _path(train, position)).exists():
            by_size.setdefault(file.stat().st_size, []).append(position)
    digests: dict[int, bytes] = {}
    used, same = set(ids) & set(train.ids), {}
    for position, key in enumerate(ids):
        file = _path(clean, position)
        candidates = by_size.get(file.stat().st_size, []) if key not in used and file.exists() else []
        if not candidates:
            continue
        content = _digest(file)
        # The same name first: of two equal files it is the likelier one.
        for candidate in sorted(candidates, key=lambda other: _path(train, other).name != file.name):
            if candidate not in digests:
                digests[candidate] = _digest(_path(train, candidate))
            if digests[candidate] == content and train.ids[candidate] not in used:
                used.add(train.ids[candidate])
                same[position] = train.ids[candidate]
                break
    return same


def _digest(file: Path) -> bytes:
    return hashlib.blake2b(file.read_bytes(), digest_size=16).digest()


def _path(source: Source, position: int) -> Path:
    assert isinstance(source.store, ImageStore | MemoryImages)
    return source.store.path(position)

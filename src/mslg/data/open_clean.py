"""Open a clean set and match its classes, labels and ids to the training data."""

from __future__ import annotations

import filecmp
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..registry import UnknownName, unknown
from .image_stores import ImageStore, MemoryImages, frame_of
from .open import open_named
from .readers.bundle import Bundle
from .readers.options import Reading
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
    alike = replace(reading, frame=frame_of(train.store) or reading.frame, vocabulary=vocabulary_of(train.store))
    try:
        source = open_named(str(clean), seed=seed, root=root, reading=alike).train
    except UnknownName as error:
        if not bundle.clean:
            raise
        raise unknown("clean set", clean, [*bundle.clean, "a number", "auto", "a path"]) from error
    return distinct_ids(_verified_only(_with_classes(source, train), str(clean)), train, str(clean))


def distinct_ids(clean: Source, train: Source, name: str) -> Source:
    """Let equal ids mean equal images where both sets are image files.

    Two folders may each have a cat/1.jpg. Where ids were made from paths and the files differ, the clean sample's id is
    prefixed with the name of its folder. A file that the training folder has under another class was moved to the right
    class in the clean folder: it gets the training sample's id.
    """
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
    moved = _moved_files(clean, train)
    if moved:
        log.info(
            "%d images of the clean set are in the data under another class: they are the same samples", len(moved)
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


def _moved_files(clean: Source, train: Source) -> dict[int, str]:
    """The training ids of clean samples whose file is in the training folder under another class. Without them, the
    folders' labels would always agree, and no noise could be found."""
    by_name: dict[str, list[int]] = {}
    for position in range(len(train)):
        if name := _below_class(train, position):
            by_name.setdefault(name, []).append(position)
    used, moved = set(clean.ids), {}
    for position in range(len(clean)):
        file = _path(clean, position)
        for candidate in by_name.get(_below_class(clean, position), []):
            key, other = train.ids[candidate], _path(train, candidate)
            if key in used or not (file.exists() and other.exists()):
                continue
            if filecmp.cmp(file, other, shallow=False):
                used.add(key)
                moved[position] = key
                break
    return moved


def _below_class(source: Source, position: int) -> str:
    """The path below the class's folder that an id was made from; "" if it was not made from a path."""
    key = source.ids[position]
    within = f"/{key}".partition(f"/{source.classes[int(source.label[position])]}/")[2]
    return within if _path(source, position).as_posix().endswith(f"/{key}") else ""


def _path(source: Source, position: int) -> Path:
    assert isinstance(source.store, ImageStore | MemoryImages)
    return source.store.path(position)

"""From one row a sample to a data set: what image folders, manifests and the large named sets have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..images import Reading, open_images
from ..source import InputStore, Source
from .bundle import Bundle

Positions = np.ndarray[Any, np.dtype[np.int64]]


def image_bundle(
    table: pd.DataFrame,
    folder: Path,
    classes: Sequence[str],
    reading: Reading,
    *,
    name: str,
    confined: bool = False,
) -> Bundle:
    """A data set of image files. The table has `path` (below the folder) and `label` (a class number), and may have
    `id` (the path by default), `split`, `verified_label` and `true_label` (−1 where unknown)."""
    if not len(table):
        raise ValueError(f"{name} has no samples")
    paths = table["path"]
    unique = paths.drop_duplicates()  # a set may list an image twice, with a noisy and with a verified label
    store, kept = open_images(unique.array, folder, reading, name=name, confined=confined)
    place = np.full(len(unique), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    where = place if len(unique) == len(paths) else place[pd.Index(unique).get_indexer(paths)]
    if len(kept) < len(unique):
        table, where = table[where >= 0], where[where >= 0]
    return bundle(table, classes, lambda rows: store.at(where[rows]), name=name)


def bundle(
    table: pd.DataFrame, classes: Sequence[str], store: Callable[[Positions], InputStore], *, name: str
) -> Bundle:
    """A data set from its table and the inputs of the rows asked for. A split that is neither `train` nor `test` is a
    clean set of that name."""
    named = next((key for key in ("id", "path") if key in table), None)
    ids = None if named is None else table[named].to_numpy(dtype=object)
    splits = table["split"].to_numpy(dtype=object) if "split" in table else np.full(len(table), "train", dtype=object)
    columns = {
        key: table[key].to_numpy(dtype=np.int64) for key in ("label", "verified_label", "true_label") if key in table
    }
    found: dict[str, Source] = {}
    for split in pd.unique(splits):
        rows = np.flatnonzero(splits == split)
        part = np.arange(len(rows)).astype(str).astype(object) if ids is None else ids[rows]
        repeated = pd.Series(part).duplicated()
        if repeated.any():
            raise ValueError(
                f"{name} has the id '{part[repeated.to_numpy()][0]}' more than once ({int(repeated.sum())} repeated "
                "ids); ids must be unique: they are how a sample is found again"
            )
        labels = {key: torch.from_numpy(values[rows]) for key, values in columns.items()}
        if split == "test":
            labels = {"label": _best_known(labels)}
        found[str(split)] = Source(
            store=store(rows),
            label=labels["label"],
            classes=tuple(classes),
            ids=tuple(part.tolist()),
            true_label=labels.get("true_label"),
            verified_label=labels.get("verified_label"),
            ids_given=ids is not None,
        )
    if "train" not in found:
        raise ValueError(f"{name} has no training samples, only those of: {', '.join(found)}")
    return Bundle(found.pop("train"), found.pop("test", None), found)


def refuse_shared_ids(table: pd.DataFrame, name: str) -> None:
    """Raise if a test sample is also a training sample."""
    if "split" not in table or not (table["split"] == "test").any():
        return
    if "id" not in table and "path" not in table:
        return  # numbered within each split
    ids = table["id"] if "id" in table else table["path"]
    test = table["split"] == "test"
    shared = ids[test][ids[test].isin(ids[~test])]
    if len(shared):
        raise ValueError(
            f"{name} has {len(shared)} samples both in train and in test, such as '{shared.iloc[0]}'; "
            "a test sample must not be trained on: remove it from one of the two"
        )


def _best_known(labels: dict[str, Tensor]) -> Tensor:
    """Test samples are judged by their true label, else the verified, else the given one."""
    best = labels["label"]
    for key in ("verified_label", "true_label"):
        if key in labels:
            best = torch.where(labels[key] >= 0, labels[key], best)
    return best

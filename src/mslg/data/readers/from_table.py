"""From a table with one row per sample to a data set: for image folders, manifests and the large named sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..source import Positions, Source
from ..stores import InputStore
from .bundle import Bundle
from .image_files import Positions as Rows
from .image_files import open_images
from .options import Reading

if TYPE_CHECKING:
    import pandas as pd


def image_bundle(
    table: pd.DataFrame,
    folder: Path,
    classes: Sequence[str],
    reading: Reading,
    *,
    name: str,
    confined: bool = False,
) -> Bundle:
    """A data set of image files.

    Args:
        table: columns `path` (below the folder) and `label` (a class number), optionally `id` (the path by default),
            `split`, `verified_label` and `true_label` (−1 where unknown).
        folder: where the paths start.
        classes: the class names.
        reading: how images are read.
        name: what to call the data in messages.
        confined: whether to refuse paths that lead out of the folder.
    """
    import pandas as pd

    if not len(table):
        raise ValueError(f"{name} has no samples")
    paths = table["path"]
    unique = paths.drop_duplicates()  # an image may be listed twice, with a noisy and with a verified label
    store, kept = open_images(unique.array, folder, reading, name=name, confined=confined)
    position = np.full(len(unique), -1, dtype=np.int64)
    position[kept] = np.arange(len(kept))
    in_store = position if len(unique) == len(paths) else position[pd.Index(unique).get_indexer(paths)]
    if len(kept) < len(unique):
        table, in_store = table[in_store >= 0], in_store[in_store >= 0]
    return table_bundle(table, classes, lambda rows: store.at(in_store[rows]), name=name)


def table_bundle(
    table: pd.DataFrame, classes: Sequence[str], store: Callable[[Rows], InputStore], *, name: str
) -> Bundle:
    """A data set from a table of labels and a function that returns the inputs of rows. A split that is neither `train`
    nor `test` is a clean set of that name."""
    import pandas as pd

    id_column = next((key for key in ("id", "path") if key in table), None)
    ids = None if id_column is None else table[id_column].to_numpy(dtype=object)
    splits = table["split"].to_numpy(dtype=object) if "split" in table else np.full(len(table), "train", dtype=object)
    columns = {
        key: table[key].to_numpy(dtype=np.int64) for key in ("label", "verified_label", "true_label") if key in table
    }
    sources: dict[str, Source] = {}
    for split in pd.unique(splits):
        rows = np.flatnonzero(splits == split)
        names: Sequence[str] = Positions(len(rows)) if ids is None else _unique(ids[rows], name)
        labels = {key: torch.from_numpy(values[rows]) for key, values in columns.items()}
        if split == "test":
            labels = {"label": _best_known(labels)}
        sources[str(split)] = Source(
            store=store(rows),
            label=labels["label"],
            classes=tuple(classes),
            ids=names,
            true_label=labels.get("true_label"),
            verified_label=labels.get("verified_label"),
            ids_given=ids is not None,
        )
    if "train" not in sources:
        raise ValueError(f"{name} has no training samples, only those of: {', '.join(sources)}")
    return Bundle(sources.pop("train"), sources.pop("test", None), sources)


def _unique(ids: np.ndarray[Any, Any], name: str) -> tuple[str, ...]:
    import pandas as pd

    repeated = pd.Series(ids).duplicated()
    if repeated.any():
        raise ValueError(
            f"{name} has the id '{ids[repeated.to_numpy()][0]}' more than once ({int(repeated.sum())} repeated "
            "ids); ids must be unique, because they identify samples"
        )
    return tuple(ids.tolist())


def refuse_shared_ids(table: pd.DataFrame, name: str) -> None:
    """Raise if a test sample is also a training sample."""
    if "split" not in table or ("id" not in table and "path" not in table):
        return  # there is one split, or samples are numbered within each
    ids, test = table["id"] if "id" in table else table["path"], table["split"] == "test"
    shared = ids[test][ids[test].isin(ids[~test])]
    if len(shared):
        raise ValueError(
            f"{name} has {len(shared)} samples both in train and in test, such as '{shared.iloc[0]}'; "
            "a test sample must not be trained on: remove it from one of the two"
        )


def _best_known(labels: dict[str, Tensor]) -> Tensor:
    """Test samples are evaluated by their true label, or else the verified one, or else the given one."""
    best = labels["label"]
    for key in ("verified_label", "true_label"):
        if key in labels:
            best = torch.where(labels[key] >= 0, labels[key], best)
    return best

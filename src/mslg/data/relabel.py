"""Replace given labels by those of a table of ids and labels."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..runtime.cells import unescaped
from .labels import encode_labels
from .readers.tables import read_csv, read_parquet
from .source import Source

if TYPE_CHECKING:
    pass

log = logging.getLogger("mslg")


def relabelled(source: Source, path: Path) -> Source:
    """The samples with the labels of a .csv or .parquet file with columns `id` and `label`, as `mslg noise` and
    `mslg apply` write them. Samples that `mslg apply` has left out, because a reviewer removed them, are dropped."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; pass a .csv or .parquet with the columns id and label")
    table = read_parquet(path) if path.suffix == ".parquet" else read_csv(path, dtype=str, keep_default_na=False)
    missing = [column for column in ("id", "label") if column not in table]
    if missing:
        raise ValueError(f"{path} has no column {' and no column '.join(missing)}; it has: {', '.join(table.columns)}")
    if path.suffix != ".parquet":
        table = table.assign(**{key: table[key].map(unescaped) for key in ("id", "label")})
    labels = dict(zip(table["id"].astype(str), table["label"].astype(str), strict=True))
    unlabelled = [name for name in source.ids if name not in labels]
    if unlabelled and "label_source" in table and len(unlabelled) < len(source):
        log.info("%s leaves out %d of %d samples: they are not trained on", path, len(unlabelled), len(source))
        source = source.at(torch.tensor([position for position, name in enumerate(source.ids) if name in labels]))
    elif unlabelled:
        raise ValueError(
            f"{path} has no label for {len(unlabelled)} of {len(source)} samples, first '{unlabelled[0]}'; "
            "its ids must be those of the data"
        )
    numbers, _ = encode_labels(np.array([labels[name] for name in source.ids]), source.classes, str(path))
    # A file written by `mslg noise` implies that the data's own labels are the true ones.
    return source.with_label(numbers) if "true_label" in table else replace(source, label=numbers)

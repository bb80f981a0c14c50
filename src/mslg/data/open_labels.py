"""Open given and verified labels, with or without the inputs they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from .labels import encode_known, encode_labels
from .open import open_named
from .open_clean import open_clean
from .readers.array_files import read_npy, read_npz
from .readers.bundle import Bundle
from .readers.manifest import KINDS, manifest, table_of_samples
from .readers.options import Reading
from .readers.tables import read_csv, read_parquet
from .source import Positions, Source, make_source
from .stores import LabelsOnly

FILES = Reading(corrupt="keep")  # files are opened only to be shown


def open_labels(
    labels: Any,
    *,
    ids: Sequence[Any] | None = None,
    classes: Sequence[str] | None = None,
    features: Any = None,
    root: str | Path | None = None,
) -> Source:
    """Given labels as a source: from an array, a DataFrame, a source, or whatever can be opened by name.

    Args:
        labels: class names or numbers; a table with the column `label` and optionally id, path, text, verified_label;
            or the name of a file, folder or data set.
        ids: a unique name per sample, for labels that come without.
        classes: the class names, for labels that are an array.
        features: (samples, …) shown to a reviewer if there is nothing else to show.
        root: the folder of a registered data set's files.
    """
    if isinstance(labels, Source):
        return labels
    if isinstance(labels, str | Path):
        return _opened(Path(labels), root)
    if isinstance(labels, pd.DataFrame):
        table = labels.rename(columns=str).astype({name: str for name in ("id", "path") if name in labels})
        found = table_of_samples(table, "the table of labels", Path(), reading=FILES, inputs_needed=False)
        return _inputs_for(found.train, features)
    numbers, names = encode_labels(labels, classes, "the labels")
    if not len(numbers):
        raise ValueError("there are no labels")
    if ids is not None and (len(ids) != len(numbers) or len(set(ids)) != len(numbers)):
        raise ValueError(
            f"there are {len(set(ids))} different ids for {len(numbers)} labels; pass a unique one per sample"
        )
    kept = Positions(len(numbers)) if ids is None else tuple(map(str, ids))
    return _inputs_for(Source(LabelsOnly(len(numbers)), numbers, names, kept, ids_given=ids is not None), features)


def open_verified(verified: Any, source: Source) -> Tensor:
    """(samples,) verified labels as class numbers of the source, −1 where unknown.

    Args:
        verified: None for those that the source has; (samples,) labels with −1, None, NaN or "" where unknown; a
            mapping from ids to labels; a table or file with the columns id and verified_label (or label); or clean data
            that can be opened by name and has the ids of the source.
        source: the samples.
    """
    if verified is None:
        return torch.full((len(source),), -1) if source.verified_label is None else source.verified_label
    if isinstance(verified, str | Path):
        verified = _read_verified(Path(verified), source)
    if isinstance(verified, pd.DataFrame):
        verified = _by_id(verified, "the verified labels")
    if isinstance(verified, Mapping):
        return _placed(verified, source)
    found = encode_known(verified, source.classes, len(source), "the verified labels")
    assert found is not None
    return found


def _opened(path: Path, root: str | Path | None) -> Source:
    if path.suffix in KINDS:
        return manifest(path, reading=FILES, inputs_needed=False).train
    if path.suffix in (".npy", ".npz") and path.exists():
        if path.suffix == ".npy":
            return open_labels(read_npy(path))
        loaded = read_npz(path)
        if "X" not in loaded and "y" in loaded:
            names = [str(name) for name in loaded["classes"]] if "classes" in loaded else None
            ids = loaded["id"].tolist() if "id" in loaded else None
            source = open_labels(loaded["y"], ids=ids, classes=names)
            known = encode_known(loaded.get("verified"), source.classes, len(source), f"'verified' in {path.name}")
            return replace(source, verified_label=known)
    return open_named(str(path), root=root, reading=FILES).train


def _inputs_for(source: Source, features: Any) -> Source:
    """Features are shown where there is nothing else to show."""
    if features is None or not isinstance(source.store, LabelsOnly) or len(features) != len(source):
        return source
    return replace(source, shown=make_source(features, np.zeros(len(source), dtype=np.int64)).store)


def _read_verified(path: Path, source: Source) -> Any:
    if path.suffix == ".npy" and path.exists():
        return read_npy(path)
    if path.suffix in KINDS and path.exists():
        table = read_parquet(path) if path.suffix == ".parquet" else read_csv(path, dtype=str)
        return _by_id(table, path.name)
    clean = open_clean(str(path), Bundle(source), reading=FILES)
    return dict(zip(clean.ids, [clean.classes[number] for number in clean.label.tolist()], strict=True))


def _by_id(table: pd.DataFrame, name: str) -> dict[str, Any]:
    column = next((each for each in ("verified_label", "label") if each in table), None)
    if "id" not in table or column is None:
        raise ValueError(
            f"{name} needs the columns id and verified_label (or label); it has: {', '.join(map(str, table.columns))}"
        )
    known = table[table[column].notna() & (table[column].astype(str) != "")]
    return dict(zip(known["id"].astype(str), known[column].tolist(), strict=True))


def _placed(verified: Mapping[Any, Any], source: Source) -> Tensor:
    place = {name: position for position, name in enumerate(source.ids)}
    missing = [str(name) for name in verified if str(name) not in place]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(verified)} verified labels have an id that the labels lack, such as "
            f"'{missing[0]}' (an id there: '{source.ids[0]}'); the ids must be those of the labels"
        )
    values = list(verified.values())
    if any(isinstance(value, str) for value in values):
        values = [str(value) for value in values]
    numbers = encode_known(np.array(values), source.classes, len(values), "the verified labels")
    assert numbers is not None
    found = torch.full((len(source),), -1)
    found[torch.tensor([place[str(name)] for name in verified], dtype=torch.int64)] = numbers
    return found

"""Votes: labels by several annotators for the same samples, in a long or a wide table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from .labels import encode_known, encode_labels
from .open_labels import open_labels
from .readers.array_files import read_npy
from .readers.tables import read_csv, read_parquet
from .source import Source

OF_SAMPLE = ("id", "path", "text", "verified_label")  # columns that are no annotator


@dataclass(frozen=True)
class Votes:
    """Who gave which sample which label."""

    sample: Tensor  # (votes,) position
    annotator: Tensor  # (votes,) number
    label: Tensor  # (votes,) class number
    names: tuple[str, ...]  # of the annotators
    samples: int
    classes: int

    def per_sample(self) -> Tensor:
        """(samples,) how many votes each has."""
        return torch.bincount(self.sample, minlength=self.samples)

    def majority(self) -> Tensor:
        """(samples,) the class with the most votes; of several the first."""
        cells, counts = np.unique((self.sample * self.classes + self.label).numpy(), return_counts=True)
        order = np.lexsort((cells, -counts, cells // self.classes))  # by sample, then most votes, then class
        first = np.unique(cells[order] // self.classes, return_index=True)[1]
        return torch.from_numpy(cells[order][first] % self.classes)


def open_votes(
    votes: Any, *, ids: Sequence[Any] | None = None, classes: Sequence[str] | None = None, features: Any = None
) -> tuple[Source, Votes]:
    """The samples, with the majority of the votes as given labels, and the votes.

    Args:
        votes: a table with the columns id, annotator and label, one row per vote; or one row per sample and a column
            per annotator, empty where there is no vote, besides id, path, text and verified_label; an array (samples,
            annotators) with −1, None or NaN where there is no vote; or a file of these (.csv, .parquet, .npy).
        ids: a unique name per sample, for an array.
        classes: the class names.
        features: (samples, …) shown to a reviewer if there is nothing else to show.
    """
    table = _read(Path(votes)) if isinstance(votes, str | Path) else votes
    if not isinstance(table, pd.DataFrame):
        array = np.asarray(table)
        if array.ndim != 2:
            raise ValueError(f"the votes have the shape {array.shape}; pass (samples, annotators), or a table")
        table = pd.DataFrame(array, columns=[str(number) for number in range(array.shape[1])])
        if ids is not None:
            table.insert(0, "id", [str(name) for name in ids])
    table = table.rename(columns=str)
    samples, rows = _long(table) if {"annotator", "label"} <= set(table) else _wide(table)
    known = [not (pd.isna(value) or value in (-1, "")) for value in rows["label"].tolist()]
    rows = rows[known]
    without = np.setdiff1d(np.arange(len(samples)), rows["sample"])
    if not len(rows) or len(without):
        which = f", such as '{samples['id'].iloc[without[0]]}'" if len(without) else ""
        raise ValueError(f"{len(without)} of {len(samples)} samples have no vote{which}; leave them out")
    numbers, names = encode_labels(_whole(rows["label"]), classes, "the votes")
    annotators, who = np.unique(rows["annotator"].astype(str), return_inverse=True)
    found = Votes(
        torch.tensor(rows["sample"].tolist(), dtype=torch.int64),
        torch.from_numpy(who.astype(np.int64)),
        numbers,
        tuple(map(str, annotators)),
        len(samples),
        len(names),
    )
    twice = pd.DataFrame({"sample": found.sample, "annotator": found.annotator}).duplicated()
    if twice.any():
        place = int(np.flatnonzero(twice)[0])
        raise ValueError(
            f"annotator '{annotators[who[place]]}' has {1 + int(twice.sum())} or more votes for the same sample, such "
            f"as '{samples['id'].iloc[int(found.sample[place])]}'; leave one"
        )
    source = open_labels(samples.drop(columns="verified_label", errors="ignore").assign(label="0"), features=features)
    verified = samples["verified_label"].to_numpy() if "verified_label" in samples else None
    known_labels = encode_known(verified, names, len(samples), "the verified labels")
    return replace(source, classes=names, label=found.majority(), verified_label=known_labels), found


def _read(path: Path) -> Any:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; pass a table of votes as .csv, .parquet or .npy")
    if path.suffix == ".npy":
        return read_npy(path)
    if path.suffix == ".parquet":
        return read_parquet(path)
    if path.suffix != ".csv":
        raise ValueError(f"{path} has no supported format; pass a table of votes as .csv, .parquet or .npy")
    return read_csv(path, dtype={"id": str, "annotator": str})


def _long(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row per sample, and a row per vote."""
    if "id" not in table:
        raise ValueError("votes with the columns annotator and label also need the column id")
    sample, ids = pd.factorize(table["id"].astype(str))
    about = [name for name in OF_SAMPLE if name in table and name != "id"]
    first = table.assign(id=table["id"].astype(str)).drop_duplicates("id")[["id", *about]].reset_index(drop=True)
    assert first["id"].tolist() == list(ids)
    return first, table[["annotator", "label"]].assign(sample=sample)


def _wide(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Likewise."""
    columns = [name for name in table if name not in OF_SAMPLE]
    if len(columns) < 2:
        there = ", ".join(map(str, table))
        raise ValueError(
            f"the table of votes has the columns {there}; it needs id, annotator and label, or a column per annotator"
        )
    about = table[[name for name in OF_SAMPLE if name in table]].reset_index(drop=True)
    about["id"] = about["id"].astype(str) if "id" in about else [str(place) for place in range(len(table))]
    if about["id"].duplicated().any():
        raise ValueError(f"the id '{about['id'][about['id'].duplicated()].iloc[0]}' occurs twice in the table of votes")
    parts = [
        pd.DataFrame({"sample": np.arange(len(table)), "annotator": name, "label": table[name].astype(object).tolist()})
        for name in columns
    ]
    return about, pd.concat(parts, ignore_index=True)


def _whole(labels: pd.Series[Any]) -> Any:
    """Class numbers that an empty cell has turned into floats, as numbers again."""
    values = labels.tolist()
    if all(isinstance(value, int | np.integer | float) and float(value).is_integer() for value in values):
        return np.array(values, dtype=np.int64)
    return np.array([str(value) for value in values], dtype=object)

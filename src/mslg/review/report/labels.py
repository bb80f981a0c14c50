"""The table of labels in numbers: read column by column and piece by piece, as it may have millions of rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

PIECE = 262_144
COLUMNS = ["given_label", "suggested_label", "is_label_issue", "label_quality"]

Numbers = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class ClassRow:
    """What the labels of one given class are worth."""

    number: int
    samples: int
    flagged: int
    quality: float | None  # the mean
    suggestion: int | None  # the class most often suggested instead
    suggested: int  # how often


@dataclass(frozen=True)
class LabelCounts:
    """The labels of a run."""

    samples: int
    flagged: int
    classes: list[ClassRow]  # those that have samples, most flagged first
    pairs: list[tuple[int, int, int]]  # given, suggested, how often; most frequent first


def count_labels(path: Path, classes: list[str]) -> LabelCounts:
    """Count the labels of `labels.parquet`."""
    count = len(classes)
    number = {name: place for place, name in enumerate(classes)}
    samples, flagged, judged = (np.zeros(count, dtype=np.int64) for _ in range(3))
    quality = np.zeros(count)
    pairs: dict[int, int] = {}
    file = pq.ParquetFile(path, read_dictionary=["given_label", "suggested_label"])
    for batch in file.iter_batches(batch_size=PIECE, columns=COLUMNS):
        given, suggested = _numbers(batch["given_label"], number), _numbers(batch["suggested_label"], number)
        issue = np.asarray(batch["is_label_issue"].to_numpy(zero_copy_only=False), dtype=bool)
        value = np.asarray(batch["label_quality"].to_numpy(zero_copy_only=False), dtype=np.float64)
        known = ~np.isnan(value)
        samples += np.bincount(given, minlength=count)
        flagged += np.bincount(given[issue], minlength=count)
        judged += np.bincount(given[known], minlength=count)
        quality += np.bincount(given[known], weights=value[known], minlength=count)
        for pair, times in zip(*np.unique(given[issue] * count + suggested[issue], return_counts=True)):
            pairs[int(pair)] = pairs.get(int(pair), 0) + int(times)
    ordered = sorted(((pair // count, pair % count, times) for pair, times in pairs.items()), key=lambda row: -row[2])
    favourite = {given: (suggested, times) for given, suggested, times in reversed(ordered)}
    rows = [
        ClassRow(
            place,
            int(samples[place]),
            int(flagged[place]),
            float(quality[place] / judged[place]) if judged[place] else None,
            *favourite.get(place, (None, 0)),
        )
        for place in np.argsort(-flagged, kind="stable").tolist()
        if samples[place]
    ]
    return LabelCounts(int(samples.sum()), int(flagged.sum()), rows, ordered)


def _numbers(column: Any, number: dict[str, int]) -> Numbers:
    """Class numbers of a column of names, each of which is looked up once."""
    found = column.dictionary_encode() if not hasattr(column, "dictionary") else column
    places = np.array([number[name] for name in found.dictionary.to_pylist()], dtype=np.int64)
    codes: Numbers = found.indices.to_numpy(zero_copy_only=False)
    return places[codes] if len(places) else np.zeros(0, dtype=np.int64)

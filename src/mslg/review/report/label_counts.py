"""Counts of given, flagged and suggested labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...issues.labels_file import read_labels

COLUMNS = ["given_label", "suggested_label", "is_label_issue", "label_quality"]

Numbers = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class ClassRow:
    """The labels of one given class."""

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


def count_labels(folder: Path, classes: list[str]) -> LabelCounts:
    """Count the labels in a run's folder."""
    count = len(classes)
    number = {name: place for place, name in enumerate(classes)}
    samples, flagged, judged = (np.zeros(count, dtype=np.int64) for _ in range(3))
    quality = np.zeros(count)
    pairs: dict[int, int] = {}
    for rows in read_labels(folder, COLUMNS):
        given, suggested = _numbers(rows["given_label"], number), _numbers(rows["suggested_label"], number)
        issue = np.asarray(rows["is_label_issue"].to_numpy(), dtype=bool)
        value = np.asarray(rows["label_quality"].to_numpy(), dtype=np.float64)
        known = ~np.isnan(value)
        samples += np.bincount(given, minlength=count)
        flagged += np.bincount(given[issue], minlength=count)
        judged += np.bincount(given[known], minlength=count)
        quality += np.bincount(given[known], weights=value[known], minlength=count)
        other = issue & (given != suggested)  # a flagged label may have no likelier class
        for pair, times in zip(*np.unique(given[other] * count + suggested[other], return_counts=True), strict=True):
            pairs[int(pair)] = pairs.get(int(pair), 0) + int(times)
    ordered = sorted(((pair // count, pair % count, times) for pair, times in pairs.items()), key=lambda row: -row[2])
    most_suggested = {given: (suggested, times) for given, suggested, times in reversed(ordered)}
    per_class = [
        ClassRow(
            place,
            int(samples[place]),
            int(flagged[place]),
            float(quality[place] / judged[place]) if judged[place] else None,
            *most_suggested.get(place, (None, 0)),
        )
        for place in np.argsort(-flagged, kind="stable").tolist()
        if samples[place]
    ]
    return LabelCounts(int(samples.sum()), int(flagged.sum()), per_class, ordered)


def _numbers(column: Any, number: dict[str, int]) -> Numbers:
    """Class numbers of a column of names, each of which is looked up once."""
    found = column.combine_chunks().dictionary_encode()
    places = np.array([number[name] for name in found.dictionary.to_pylist()], dtype=np.int64)
    codes: Numbers = found.indices.to_numpy(zero_copy_only=False)
    return places[codes] if len(places) else np.zeros(0, dtype=np.int64)

"""What a reader returns: training samples, and test and clean samples if there are any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..source import Source, make_source

NONE: Mapping[str, Source] = MappingProxyType({})


class Bundle(NamedTuple):
    """A data set as it is on disk, before any noise. `clean` holds its own clean sets by name."""

    train: Source
    test: Source | None = None
    clean: Mapping[str, Source] = NONE


def benchmark_source(inputs: Any, label: Any, classes: Sequence[str], *, split: str, name: str) -> Source:
    """One split of a benchmark in memory: ids are `<split>-<number>`, and every training label counts as verified."""
    return make_source(
        inputs,
        label,
        classes=classes,
        ids=[f"{split}-{number}" for number in range(len(label))],
        verified_labels=label if split == "train" else None,
        name=f"{name} ({split})",
    )

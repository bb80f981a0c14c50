"""What a data set gives: training samples, and test samples where it has some."""

from __future__ import annotations

from typing import NamedTuple

from ..source import Source


class Bundle(NamedTuple):
    """A data set as found on disk, before any noise."""

    train: Source
    test: Source | None = None

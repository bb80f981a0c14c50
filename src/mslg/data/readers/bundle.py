"""What a data set gives: training samples, and test and clean samples where it has some."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..source import Source

NONE: Mapping[str, Source] = MappingProxyType({})


class Bundle(NamedTuple):
    """A data set as found on disk, before any noise. Its own clean sets, if any, are asked for by name."""

    train: Source
    test: Source | None = None
    clean: Mapping[str, Source] = NONE

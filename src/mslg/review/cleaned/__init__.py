"""From a run and a reviewer's decisions to a cleaned data set."""

from __future__ import annotations

from .samples import Counts, cleaned
from .write import FORMATS, format_of, write

__all__ = ["FORMATS", "Counts", "cleaned", "format_of", "write"]

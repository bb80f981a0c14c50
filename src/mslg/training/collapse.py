"""Watches for labels or predictions that fall into few classes, and says so once."""

from __future__ import annotations

import logging

from torch import Tensor

from .evaluation import spread
from .loop import EpochRecord

log = logging.getLogger("mslg")

ALARM = 0.5  # of the spread that the given labels have


class CollapseWatch:
    """Compares the effective number of classes in use with that of the given labels."""

    def __init__(self, given: Tensor, classes: int) -> None:
        self.expected = spread(given.cpu(), classes)
        self.told: set[str] = set()

    def __call__(self, record: EpochRecord) -> list[str]:
        """Warnings about this epoch, each kind at most once a run."""
        warnings = []
        for kind in ("predictions", "labels"):
            value = record.metrics.get(f"{kind}/spread")
            if value is None or kind in self.told or record.epoch == 0 or value >= ALARM * self.expected:
                continue
            self.told.add(kind)
            warnings.append(
                f"epoch {record.epoch + 1}: the {kind} use {value:.1f} classes in effect, the given labels "
                f"{self.expected:.1f}. They are collapsing: try a smaller label_rate, a longer warm_up, "
                "or more clean samples of the missing classes."
            )
        for warning in warnings:
            log.warning(warning)
        return warnings

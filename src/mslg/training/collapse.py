"""Warns when labels or predictions collapse into few classes."""

from __future__ import annotations

import logging

from torch import Tensor

from .evaluation import spread
from .loop import EpochRecord

log = logging.getLogger("mslg")

ALARM = 0.5  # of the spread that the given labels have


class CollapseWatch:
    """Compares the effective number of classes in use with that of the given labels.

    Args:
        given: (samples,) given labels.
        classes: number of classes.
        advice: what the method says to try.
    """

    def __init__(self, given: Tensor, classes: int, *, advice: str = "") -> None:
        self.expected = spread(given.cpu(), classes)
        self.advice = advice or "a smaller learning rate"
        self.warned: set[str] = set()
        self.trained = False  # whether there was an epoch with steps

    def __call__(self, record: EpochRecord) -> list[str]:
        """Warnings about this epoch, each kind at most once per run."""
        warnings: list[str] = []
        first, self.trained = (
            not self.trained,
            self.trained or any(name.startswith("train/") for name in record.metrics),
        )
        if first:  # a network that has just begun to learn
            return warnings
        for kind in ("predictions", "labels"):
            value = record.metrics.get(f"{kind}/spread")
            if value is None or kind in self.warned or value >= ALARM * self.expected:
                continue
            self.warned.add(kind)
            warnings.append(
                f"epoch {record.epoch + 1}: the {kind} effectively use {value:.1f} classes, the given labels "
                f"{self.expected:.1f}. They are collapsing: try {self.advice}."
            )
        for warning in warnings:
            log.warning(warning)
        return warnings

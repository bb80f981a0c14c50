"""The controls that every method should beat: plain ways to use the same noisy and clean samples."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


class Trial(NamedTuple):
    """One training run, with the samples, network and schedule of the method under comparison."""

    method: str | None  # None: the method under comparison, with other settings
    settings: Mapping[str, Any] = NO_SETTINGS
    without: tuple[str, ...] = ()  # settings that a second run of the same method must not share
    weight_decay: float = 1.0  # factor on the run's weight decay


class Control(NamedTuple):
    """What a method is compared with: the last epoch of one trial, or the best epoch on select of several trials."""

    words: str
    trials: tuple[str, ...]
    chosen: bool = False  # whether trial and epoch are chosen on the select part
    needs: tuple[str, ...] = ()  # "pairs": clean samples with given and verified labels


TRIALS: dict[str, Trial] = {
    "cross-entropy": Trial("cross-entropy"),
    "cross-entropy-decay": Trial("cross-entropy", weight_decay=10.0),
    "clean-only": Trial("clean-only"),
    "noisy-plus-clean": Trial("noisy-plus-clean"),
    "noisy-then-clean": Trial("noisy-then-clean"),
    "gold-correction": Trial("gold-correction"),
    "no-label-learning": Trial(None, MappingProxyType({"label_rate": 0.0}), without=("table_file",)),
}

# Roughly from weakest to strongest: of two that tie on select, the later one counts as better.
CONTROLS: dict[str, Control] = {
    "cross-entropy": Control("cross entropy on the given labels", ("cross-entropy",)),
    "clean-only": Control("the clean samples alone", ("clean-only",)),
    "noisy-plus-clean": Control("noisy and clean samples together", ("noisy-plus-clean",)),
    "cross-entropy-chosen": Control(
        "cross entropy with chosen length and weight decay", ("cross-entropy", "cross-entropy-decay"), chosen=True
    ),
    "noisy-then-clean": Control("noisy samples, then clean ones", ("noisy-then-clean",)),
    "no-label-learning": Control("the same without label learning", ("no-label-learning",)),
    "gold-correction": Control("gold correction", ("gold-correction",), needs=("pairs",)),
}

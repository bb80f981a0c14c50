"""The controls that every method should beat: plain ways to use the same noisy and clean samples."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


class Trial(NamedTuple):
    """One training run, on the samples, the network and the schedule of the method that is compared."""

    method: str | None  # None: the method that is compared, with other settings
    settings: Mapping[str, Any] = NO_SETTINGS
    without: tuple[str, ...] = ()  # settings of the compared method that a second run of it must not share
    weight_decay: float = 1.0  # factor on that of the run


class Control(NamedTuple):
    """What a method is compared with: the last epoch of its one trial, or the best on select of all its trials."""

    words: str
    trials: tuple[str, ...]
    chosen: bool = False  # whether the epoch and the trial are chosen on the select part
    needs: tuple[str, ...] = ()  # of "pairs": clean samples that carry a given and a verified label


TRIALS: dict[str, Trial] = {
    "cross-entropy": Trial("cross-entropy"),
    "cross-entropy-decay": Trial("cross-entropy", weight_decay=10.0),
    "clean-only": Trial("clean-only"),
    "noisy-plus-clean": Trial("noisy-plus-clean"),
    "noisy-then-clean": Trial("noisy-then-clean"),
    "gold-correction": Trial("gold-correction"),
    "no-label-learning": Trial(None, MappingProxyType({"label_rate": 0.0}), without=("table_file",)),
}

# From the weakest to the strongest, as a rule: of two that are equally good on select the later one counts as better.
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

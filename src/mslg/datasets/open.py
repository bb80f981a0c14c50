"""From what a user names (a data set, a file, a number of clean samples, a noise) to sources."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ..names import unknown
from ..noise import NOISES
from ..seeds import numpy_generator
from ..source import Source
from . import DATASETS
from .arrays import npz
from .bundle import Bundle

log = logging.getLogger("mslg")


class Opened(NamedTuple):
    """Data ready for `fit`. The noise rate and matrix are known where the noise was made here."""

    train: Source
    clean: Source | int | str | None
    test: Source | None
    noise_rate: float | None = None
    transition: Tensor | None = None


def open_data(settings: Mapping[str, Any], *, seed: int = 0) -> Opened:
    """Open the training data, corrupt its labels if a noise is named, and open the clean data."""
    bundle = open_named(str(settings["source"]), seed=seed)
    train, rate, transition = bundle.train, None, None
    if (noise := settings.get("noise")) is not None:
        corruption = NOISES.load(noise)(
            train.label,
            float(settings.get("rate", 0.4)),
            numpy_generator(seed, "noise"),
            classes=len(train.classes),
        )
        log.info("%s noise: %.1f %% of the labels are now wrong", noise, 100 * corruption.rate)
        train, rate, transition = train.with_label(corruption.label), corruption.rate, corruption.realised.float()
    return Opened(train, _open_clean(settings.get("clean"), train, seed), bundle.test, rate, transition)


def open_named(name: str, *, seed: int = 0) -> Bundle:
    """A data set by name, or a file."""
    if name in DATASETS:
        opened: Bundle = DATASETS.load(name)(seed=seed)
        return opened
    path = Path(name)
    if path.suffix == ".npz":
        return npz(path)
    if path.exists():
        raise ValueError(f"{path} is no kind of data that can be read; give an .npz with X and y, or a data set's name")
    raise unknown("data set", name, [*DATASETS, "a path to an .npz file"])


def _open_clean(clean: Any, train: Source, seed: int) -> Source | int | str | None:
    if clean is None or clean == "auto":
        return None if clean is None else "auto"
    if str(clean).isdigit():
        return int(clean)
    source = open_named(str(clean), seed=seed).train
    return source if source.classes == train.classes else _with_classes(source, train)


def _with_classes(source: Source, like: Source) -> Source:
    """A clean set may lack the last classes of numbers; its labels mean the same."""
    from dataclasses import replace

    if set(source.classes) <= set(like.classes) and source.classes == like.classes[: len(source.classes)]:
        return replace(source, classes=like.classes)
    return source

"""Noise by name on a source: checks the settings, and hands over the inputs where the noise needs them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from ..data.batch import Inputs, map_inputs
from ..data.source import Source, leaves
from ..registry import unknown
from ..runtime.seeds import numpy_generator
from . import NOISES
from .corruption import Corruption

_OWN = ("label", "rate", "generator", "classes", "inputs")  # not settings: they come with the data
_INSTEAD_OF_INPUTS = ("probabilities", "features")


def settings_of(kind: str) -> list[str]:
    """The names of the settings that a noise takes."""
    return [name for name in inspect.signature(NOISES.load(kind)).parameters if name not in _OWN]


def corrupt(
    source: Source, kind: str, rate: float | None, *, seed: int = 0, settings: Mapping[str, Any] | None = None
) -> Corruption:
    """Corrupt the given labels of a source; a setting that the noise does not have is an error."""
    allowed = settings_of(kind)
    settings = dict(settings or {})
    for name in settings:
        if name not in allowed:
            raise unknown(f"setting of {kind} noise", name, allowed or ["none"])
    if "inputs" in NOISES[kind].needs and not any(settings.get(name) is not None for name in _INSTEAD_OF_INPUTS):
        settings["inputs"] = all_inputs(source)
    result: Corruption = NOISES.load(kind)(
        source.label, rate, numpy_generator(seed, "noise"), classes=len(source.classes), **settings
    )
    return result


def all_inputs(source: Source) -> Inputs:
    """The inputs of every sample, in memory."""
    batches = list(source.store.batches(torch.arange(len(source)).split(1024)))
    columns = zip(*(leaves(batch) for batch in batches))  # the pieces of each part of the inputs
    return map_inputs(lambda _: torch.cat(next(columns)), batches[0])

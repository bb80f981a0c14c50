"""Noise on the labels of a source: checks the settings, and passes the inputs where the noise takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..data.batch import Inputs, leaves, map_inputs
from ..data.source import Source
from ..registry import unknown
from ..runtime.seeds import numpy_generator
from . import NOISES
from .corruption import Corruption

_OWN = ("label", "rate", "generator", "classes", "inputs")  # not settings: they come with the data
PER_SAMPLE = ("probabilities", "features")  # settings that replace the inputs, with a row per sample


Noise = str | Callable[..., Corruption]  # a registered name, package.module:function, or the function itself


def settings_of(noise: Noise) -> list[str]:
    """The names of the settings that a noise takes."""
    return [name for name in inspect.signature(NOISES.resolve(noise).object).parameters if name not in _OWN]


def corrupt(
    source: Source, noise: Noise, rate: float | None, *, seed: int = 0, settings: Mapping[str, Any] | None = None
) -> Corruption:
    """Corrupt the given labels of a source; a setting that the noise does not have is an error."""
    name, function, _ = NOISES.resolve(noise)
    allowed = settings_of(function)
    settings = dict(settings or {})
    for key in settings:
        if key not in allowed:
            raise unknown(f"setting of {name} noise", key, allowed or ["none"])
    takes_inputs = "inputs" in inspect.signature(function).parameters
    if takes_inputs and not any(settings.get(key) is not None for key in PER_SAMPLE):
        settings["inputs"] = all_inputs(source)
    result: Corruption = function(
        source.label, rate, numpy_generator(seed, "noise"), classes=len(source.classes), **settings
    )
    return result


def all_inputs(source: Source) -> Inputs:
    """The inputs of every sample, in memory."""
    batches = list(source.store.batches(torch.arange(len(source)).split(1024)))
    columns = zip(*(leaves(batch) for batch in batches), strict=True)  # the pieces of each part of the inputs
    return map_inputs(lambda _: torch.cat(next(columns)), batches[0])

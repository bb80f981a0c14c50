"""Open the data of a run: training, clean and test samples, with noise if the settings name one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ..data.open import open_named, reading_of, subset_index
from ..data.open_clean import decisions_file, open_clean
from ..data.relabel import relabelled
from ..data.source import Source
from ..networks.build import default_network, network_factory
from ..noise.apply import PER_SAMPLE, corrupt, settings_of
from ..noise.corruption import Corruption
from ..noise.read_arrays import read_array

log = logging.getLogger("mslg")

OPTIONS = ("human", "human_file", "food101", "mini")  # settings that only some of the named data sets have


class Opened(NamedTuple):
    """Data ready for `fit`. Noise rate and transition matrix are known if the noise was added here."""

    train: Source
    clean: Source | int | str | None
    test: Source | None
    noise_rate: float | None = None
    transition: Tensor | None = None


def open_data(
    settings: Mapping[str, Any],
    *,
    noise_settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    workers: int | None = None,
) -> Opened:
    """Open the training data, corrupt its labels if a noise is named, and open the clean data."""
    reading = reading_of(settings, workers)
    options = {key: value for key, value in settings.items() if key in OPTIONS}
    root = settings.get("root")
    bundle = open_named(str(settings["source"]), seed=seed, root=root, reading=reading, options=options)
    if settings.get("subset") is not None:
        kept = subset_index(bundle.train, settings["subset"])
        noise_settings = _of_subset(noise_settings or {}, kept, len(bundle.train))
        bundle = bundle._replace(train=bundle.train.at(kept))
    clean = open_clean(settings.get("clean"), bundle, seed=seed, root=root, reading=reading)
    train, rate, transition = bundle.train, None, None
    if isinstance(clean, Source) and decisions_file(Path(str(settings["clean"]))) is not None:
        train = replace(train, ids_given=True)  # decisions are about these very samples, by position if not by name
    if settings.get("labels") is not None:
        train = relabelled(train, Path(str(settings["labels"])))
    if (noise := settings.get("noise")) is not None:
        corruption = corrupted(train, noise, settings.get("rate"), seed=seed, settings=noise_settings)
        log.info("%s noise: %.1f %% of the labels are now wrong", noise, 100 * corruption.rate)
        train, rate, transition = train.with_label(corruption.label), corruption.rate, corruption.realised.float()
    return Opened(train, clean, bundle.test, rate, transition)


def _of_subset(noise_settings: Mapping[str, Any], kept: Tensor, whole: int) -> dict[str, Any]:
    """Settings with a row per sample of the whole data set have a row per sample of the subset."""
    cut = dict(noise_settings)
    for key in PER_SAMPLE:
        if cut.get(key) is not None and len(rows := read_array(cut[key], f"the {key}")) == whole:
            cut[key] = rows[kept.numpy()]
    return cut


def corrupted(
    source: Source, kind: str, rate: float | None, *, seed: int = 0, settings: Mapping[str, Any] | None = None
) -> Corruption:
    """Corrupt the given labels. Noise that trains a network gets one that fits the data; `network` names another, and
    `network.*` are its settings."""
    options, network = {}, {}
    for key, value in (settings or {}).items():
        if key.startswith("network."):
            network[key.removeprefix("network.")] = value
        else:
            options[key] = value
    trains = "network" in settings_of(kind) and options.get("probabilities") is None
    if network and not trains:
        raise ValueError(
            f"{kind} noise trains no network here; remove {', '.join(f'network.{key}' for key in network)}"
        )
    if trains and not callable(options.get("network")):
        name = str(options.get("network") or default_network(source))
        options["network"] = network_factory(name, source, **network)
    return corrupt(source, kind, rate, seed=seed, settings=options)

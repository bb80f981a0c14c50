"""From what a user names (a data set, a file, a number of clean samples, a noise) to sources."""

from __future__ import annotations

import filecmp
import inspect
import logging
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..data.images import ImageStore, MemoryImages, Reading, frame_of
from ..data.make_splits import balanced
from ..data.readers import DATASETS
from ..data.readers.arrays import npz
from ..data.readers.bundle import Bundle
from ..data.readers.folder import folder
from ..data.readers.manifest import KINDS, manifest
from ..data.source import Source, encode_labels
from ..data.texts import vocabulary_of
from ..networks.build import default_network, network_factory
from ..noise.apply import corrupt, settings_of
from ..noise.corruption import Corruption
from ..registry import UnknownName, unknown

log = logging.getLogger("mslg")

OPTIONS = ("human", "human_file", "food101", "mini")  # settings that some of the named data sets have
METADATA = ("metadata.csv", "metadata.parquet")  # what makes a folder a Hugging Face imagefolder
WAYS = "an image folder, a .csv or .parquet manifest, an .npz with X and y, or a data set's name"


class Opened(NamedTuple):
    """Data ready for `fit`. The noise rate and matrix are known where the noise was made here."""

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
        bundle = bundle._replace(train=subset(bundle.train, settings["subset"]))
    clean = open_clean(settings.get("clean"), bundle, seed=seed, root=root, reading=reading)
    train, rate, transition = bundle.train, None, None
    if settings.get("labels") is not None:
        train = relabelled(train, Path(str(settings["labels"])))
    if (noise := settings.get("noise")) is not None:
        rate = settings.get("rate")
        corruption = corrupted(train, noise, rate, seed=seed, settings=noise_settings)
        log.info("%s noise: %.1f %% of the labels are now wrong", noise, 100 * corruption.rate)
        train, rate, transition = train.with_label(corruption.label), corruption.rate, corruption.realised.float()
    return Opened(train, clean, bundle.test, rate, transition)


def subset(source: Source, count: int) -> Source:
    """So many of the samples, class-balanced: the same ones whatever the run's seed, so that runs can be compared."""
    if not isinstance(count, int) or not 2 <= count <= len(source):
        raise ValueError(f"subset is {count}; it is a number of training samples, from 2 to {len(source)} here")
    return source.at(balanced(source.label, count, len(source.classes), seed=0))


def relabelled(source: Source, path: Path) -> Source:
    """The samples with labels from a table with the columns `id` and `label`, such as `mslg noise` and `mslg apply`
    write. Samples that a reviewer has removed are not in the latter, and not trained on."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; give a .csv or .parquet with the columns id and label")
    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, dtype=str, keep_default_na=False)
    missing = [column for column in ("id", "label") if column not in table]
    if missing:
        raise ValueError(f"{path} has no column {' and no column '.join(missing)}; it has: {', '.join(table.columns)}")
    found = dict(zip(table["id"].astype(str), table["label"].astype(str)))
    lost = [name for name in source.ids if name not in found]
    if lost and "label_source" in table and len(lost) < len(source):
        log.info("%s leaves out %d of %d samples: they are not trained on", path, len(lost), len(source))
        source = source.at(torch.tensor([place for place, name in enumerate(source.ids) if name in found]))
    elif lost:
        raise ValueError(
            f"{path} has no label for {len(lost)} of {len(source)} samples, first '{lost[0]}'; "
            "its ids must be those of the data"
        )
    numbers, _ = encode_labels(np.array([found[name] for name in source.ids]), source.classes, str(path))
    # Written by `mslg noise`, the file says that the data's own labels are the true ones.
    return source.with_label(numbers) if "true_label" in table else replace(source, label=numbers)


def reading_of(settings: Mapping[str, Any], workers: int | None = None) -> Reading:
    """How files are to be read, out of the settings of the data."""
    return Reading(
        workers=workers, **{key: settings[key] for key in ("size", "channels", "corrupt", "words") if key in settings}
    )


def corrupted(
    source: Source, kind: str, rate: float | None, *, seed: int = 0, settings: Mapping[str, Any] | None = None
) -> Corruption:
    """Corrupt the given labels. Noise that trains a network gets one that fits the data; `network` may name another."""
    options, network = {}, {}
    for key, value in (settings or {}).items():
        if key.startswith("network."):
            network[key.removeprefix("network.")] = value
        else:
            options[key] = value
    trains = "network" in settings_of(kind) and options.get("probabilities") is None
    if network and not trains:
        raise ValueError(
            f"{kind} noise trains no network here; leave out {', '.join(f'network.{key}' for key in network)}"
        )
    if trains and not callable(options.get("network")):
        name = str(options.get("network") or default_network(source))
        options["network"] = network_factory(name, source, **network)
    return corrupt(source, kind, rate, seed=seed, settings=options)


def open_named(
    name: str,
    *,
    seed: int = 0,
    root: str | Path | None = None,
    reading: Reading | None = None,
    options: Mapping[str, Any] | None = None,
) -> Bundle:
    """A data set by name, with `root` where its files are and `options` of its own; or a file, or a folder."""
    reading = reading or Reading()
    if name in DATASETS:
        return _open_registered(name, seed, root, reading, options or {})
    if options:
        raise ValueError(f"{', '.join(options)}: only named data sets have such settings, and {name} is none")
    if name.startswith("hf:"):
        from ..data.readers.hugging_face import hugging_face

        return hugging_face(Path(name.removeprefix("hf:")), reading=reading)
    path = Path(name)
    if path.suffix == ".npz":
        return npz(path)
    if path.suffix in KINDS:
        return manifest(path, reading=reading)
    if path.is_dir():
        listed = next((path / file for file in METADATA if (path / file).exists()), None)
        return folder(path, reading=reading) if listed is None else manifest(listed, reading=reading)
    if path.exists():
        raise ValueError(f"{path} is no kind of data that can be read; give {WAYS}")
    if len(path.parts) > 1 or path.suffix:
        raise FileNotFoundError(f"there is no file or folder {path}; give {WAYS}")
    nearby = [entry.name for entry in Path().iterdir() if not entry.name.startswith(".")]
    if close := get_close_matches(name, nearby, n=1, cutoff=0.6):
        raise FileNotFoundError(f"there is no file, folder or data set '{name}'. Did you mean '{close[0]}'?")
    raise unknown("data set", name, [*DATASETS, "the path of an image folder, a .csv, a .parquet or an .npz"])


def _open_registered(
    name: str, seed: int, root: str | Path | None, reading: Reading, options: Mapping[str, Any]
) -> Bundle:
    function = DATASETS.load(name)
    wanted = inspect.signature(function).parameters
    for key in options:
        if key not in wanted:
            own = [key for key in wanted if key not in ("root", "seed", "reading")]
            raise unknown(f"setting of {name}", key, own or ["(it has none)"])
    given: dict[str, Any] = {"seed": seed, "reading": reading, **options}
    if "root" in wanted:
        if root is None:
            raise ValueError(
                f"{name} needs the folder of its files: pass root= (--root); see docs/data.md for its layout"
            )
        given["root"] = Path(root)
        if not given["root"].exists():
            raise FileNotFoundError(f"there is no folder {root}; pass root= (--root): where the files of {name} are")
    opened: Bundle = function(**{key: value for key, value in given.items() if key in wanted})
    return opened


def open_clean(clean: Any, bundle: Bundle, *, seed: int = 0, root: Any = None, reading: Reading) -> Any:
    """A clean set for the bundle's training samples: its own by name, a number, "auto", or data like the training's."""
    train = bundle.train
    if clean is None or clean == "auto":
        return clean
    if str(clean).isdigit():
        return int(clean)
    if clean in bundle.clean:
        return bundle.clean[clean]
    alike = replace(reading, frame=frame_of(train.store) or reading.frame, vocabulary=vocabulary_of(train.store))
    try:
        source = open_named(str(clean), seed=seed, root=root, reading=alike).train
    except UnknownName as error:
        if not bundle.clean:
            raise
        raise unknown("clean set", clean, [*bundle.clean, "a number", "auto", "a path"]) from error
    return distinct_ids(_verified_only(_with_classes(source, train), str(clean)), train, str(clean))


def _with_classes(source: Source, like: Source) -> Source:
    """A clean set may lack some of the classes; its labels are numbered like the training labels."""
    if source.classes == like.classes or not set(source.classes) <= set(like.classes):
        return source
    number = torch.tensor([like.classes.index(name) for name in source.classes] + [-1])  # the last is for −1
    label, verified, true = (
        None if labels is None else number[labels]
        for labels in (source.label, source.verified_label, source.true_label)
    )
    assert label is not None
    return replace(source, classes=like.classes, label=label, verified_label=verified, true_label=true)


def _verified_only(source: Source, name: str) -> Source:
    """Where a clean set says which labels are verified, those count."""
    if source.verified_label is None:
        return source
    unverified = int((source.verified_label < 0).sum())
    if unverified:
        raise ValueError(
            f"{unverified} of {len(source)} samples of the clean set {name} have no verified label; "
            "leave these out, or leave out the column if every label is verified"
        )
    return replace(source, label=source.verified_label)


def distinct_ids(clean: Source, train: Source, name: str) -> Source:
    """Two folders may each have a cat/1.jpg. Ids that were made from paths mean the same sample only if the files are
    the same; otherwise the clean one's gets the folder's name in front. A file that lies in another class's folder of
    the training set was put into the right one here: it takes the training sample's id."""
    stores = (clean.store, train.store)
    if not all(isinstance(store, ImageStore | MemoryImages) for store in stores):
        return clean
    here, there = (pd.Series(np.arange(len(source)), index=pd.Index(source.ids)) for source in (clean, train))
    renamed = list(clean.ids)
    for key in here.index.intersection(there.index):
        files = clean.store.path(int(here[key])), train.store.path(int(there[key]))  # type: ignore[attr-defined]
        made = all(file.as_posix().endswith(key) for file in files)
        if made and all(file.exists() for file in files) and not filecmp.cmp(*files, shallow=False):
            renamed[int(here[key])] = f"{Path(name).stem}/{key}"
    count = sum(new != old for new, old in zip(renamed, clean.ids))
    if count:
        log.info("%d ids (paths) are in both sets but are different images: they are kept apart", count)
    refiled = _refiled(clean, train)
    if refiled:
        log.info(
            "%d images of the clean set are in the data under another class: they are the same samples", len(refiled)
        )
    return replace(clean, ids=tuple(refiled.get(position, key) for position, key in enumerate(renamed)))


def _refiled(clean: Source, train: Source) -> dict[int, str]:
    """Clean samples whose file is in the training folder under another class, with the ids these have there. Without
    them, folders would only ever agree on a label, and all noise would be called none."""
    places: dict[str, list[int]] = {}
    for place in range(len(train)):
        if name := _below_class(train, place):
            places.setdefault(name, []).append(place)
    own, found = set(clean.ids), {}
    for position in range(len(clean)):
        file = clean.store.path(position)  # type: ignore[attr-defined]
        for place in places.get(_below_class(clean, position), []):
            key = train.ids[place]
            other = train.store.path(place)  # type: ignore[attr-defined]
            if key in own or not (file.exists() and other.exists()):
                continue
            if filecmp.cmp(file, other, shallow=False):
                own.add(key)
                found[position] = key
                break
    return found


def _below_class(source: Source, position: int) -> str:
    """The path below the class's folder that an id was made from; nothing where it was not."""
    key, file = source.ids[position], source.store.path(position)  # type: ignore[attr-defined]
    within = f"/{key}".partition(f"/{source.classes[int(source.label[position])]}/")[2]
    return within if file.as_posix().endswith(f"/{key}") else ""

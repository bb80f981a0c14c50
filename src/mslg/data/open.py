"""Open data by name: a registered data set, a file, or a folder."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import Tensor

from ..registry import UnknownName, unknown
from .make_splits import balanced
from .readers import DATASETS
from .readers.arrays import npz
from .readers.bundle import Bundle
from .readers.folder import folder
from .readers.manifest import KINDS, manifest
from .readers.options import Reading
from .source import Source

log = logging.getLogger("mslg")

METADATA = ("metadata.csv", "metadata.parquet")  # files that make a folder a Hugging Face imagefolder
FORMATS = "an image folder, a .csv, .tsv, .xlsx or .parquet manifest, an .npz with X and y, or a data set's name"


def open_named(
    name: str,
    *,
    seed: int = 0,
    root: str | Path | None = None,
    reading: Reading | None = None,
    options: Mapping[str, Any] | None = None,
) -> Bundle:
    """Open a data set.

    Args:
        name: a registered name, package.module:function, `hf:PATH`, or the path of a file or folder.
        seed: for data sets that are split at random.
        root: the folder of a registered data set's files.
        reading: how inputs are read.
        options: further arguments of a registered data set.
    """
    reading = reading or Reading()
    is_code = ":" in name and not name.startswith("hf:") and not Path(name).exists()
    if name in DATASETS or is_code:
        return _open_registered(name, seed, root, reading, options or {})
    if options:
        raise ValueError(f"{', '.join(options)}: only registered data sets have such settings, and {name} is none")
    if name.startswith("hf:"):
        from .readers.hugging_face import hugging_face

        return hugging_face(Path(name.removeprefix("hf:")), reading=reading)
    path = Path(name)
    if path.suffix == ".npz":
        return npz(path)
    if path.suffix in KINDS:
        return manifest(path, reading=reading)
    if path.is_dir():
        metadata = next((path / file for file in METADATA if (path / file).exists()), None)
        return folder(path, reading=reading) if metadata is None else manifest(metadata, reading=reading)
    if path.exists():
        raise ValueError(f"{path} has no supported format; pass {FORMATS}")
    if len(path.parts) > 1 or path.suffix:
        raise FileNotFoundError(f"there is no file or folder {path}; pass {FORMATS}")
    nearby = [entry.name for entry in Path().iterdir() if not entry.name.startswith(".")]
    if close := get_close_matches(name, nearby, n=1, cutoff=0.6):
        raise FileNotFoundError(f"there is no file, folder or data set '{name}'. Did you mean '{close[0]}'?")
    if get_close_matches(name, list(DATASETS), n=1, cutoff=0.6):
        raise unknown("data set", name, DATASETS)
    raise UnknownName(
        f"there is no file or folder '{name}' here, and no data set of that name; pass {FORMATS} ({DATASETS.listing})"
    )


def _open_registered(
    name: str, seed: int, root: str | Path | None, reading: Reading, options: Mapping[str, Any]
) -> Bundle:
    function = DATASETS.resolve(name).object
    parameters = inspect.signature(function).parameters
    for key in options:
        if key not in parameters:
            own = [key for key in parameters if key not in ("root", "seed", "reading")]
            raise unknown(f"setting of {name}", key, own or ["(it has none)"])
    arguments: dict[str, Any] = {"seed": seed, "reading": reading, **options}
    if "root" in parameters:
        if root is None:
            raise ValueError(
                f"{name} needs the folder of its files: pass root= (--root); see docs/data.md for its layout"
            )
        arguments["root"] = Path(root)
        if not arguments["root"].exists():
            raise FileNotFoundError(f"there is no folder {root}; pass root= (--root): where the files of {name} are")
    bundle: Bundle = function(**{key: value for key, value in arguments.items() if key in parameters})
    return bundle


def reading_of(settings: Mapping[str, Any], workers: int | None = None) -> Reading:
    """How inputs are read, from the settings of the data."""
    keys = ("size", "channels", "corrupt", "words")
    named = {kind: settings.get(f"{kind}_column") for kind in ("label", "text", "id", "path")}
    columns = {kind: str(name) for kind, name in named.items() if name is not None}
    return Reading(workers=workers, columns=columns, **{key: settings[key] for key in keys if key in settings})


def subset(source: Source, count: int) -> Source:
    """A class-balanced subset of `count` samples, the same for every seed so that runs can be compared."""
    return source.at(subset_index(source, count))


def subset_index(source: Source, count: int) -> Tensor:
    """The positions of that subset."""
    if not isinstance(count, int) or not 2 <= count <= len(source):
        raise ValueError(f"subset is {count}; it must be a number of training samples, from 2 to {len(source)} here")
    return balanced(source.label, count, len(source.classes), seed=0)

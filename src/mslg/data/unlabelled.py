"""Open inputs without labels, to predict on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .open import METADATA, open_named
from .readers import DATASETS
from .readers.arrays import unlabelled_arrays
from .readers.folder import images_below, readable
from .readers.image_files import open_images
from .readers.manifest import KINDS, unlabelled_table
from .readers.options import Reading
from .source import Positions
from .stores import InputStore, TensorStore

FORMATS = "a folder of images, a .csv or .parquet table, an .npz with X, an .npy, or a data set's name"


class Unlabelled(NamedTuple):
    """Inputs, and a name for each."""

    store: InputStore
    ids: Sequence[str]


def open_unlabelled(
    name: str,
    *,
    reading: Reading,
    columns: Sequence[str] | None = None,
    root: Path | str | None = None,
    settings: dict[str, Any] | None = None,
) -> Unlabelled:
    """Open the inputs of a file, a folder or a data set; labels are not needed, and ignored if there are some.

    Args:
        name: a path, or a data set's name (its test samples, or else its training samples).
        reading: how inputs are read.
        columns: the names of a table's features, in the order in which the network takes them.
        root: the folder of a registered data set's files.
        settings: further settings of a registered data set.
    """
    path = Path(name)
    if name.startswith("hf:") or (name in DATASETS and not path.exists()):
        bundle = open_named(name, root=root, reading=reading, options=settings)
        source = bundle.train if bundle.test is None else bundle.test
        return Unlabelled(source.store, source.ids)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}; pass {FORMATS}")
    if path.is_dir():
        metadata = next((path / file for file in METADATA if (path / file).exists()), None)
        return _table(metadata, reading, columns) if metadata is not None else _folder(path, reading)
    if path.suffix in (".npz", ".npy"):
        inputs, ids = unlabelled_arrays(path)
        return _named(TensorStore(inputs), ids)
    if path.suffix in KINDS:
        return _table(path, reading, columns)
    raise ValueError(f"{path} has no supported format; pass {FORMATS}")


def _folder(path: Path, reading: Reading) -> Unlabelled:
    names = readable(sorted(images_below(path)), path)
    if not names:
        raise ValueError(f"{path} has no image files")
    store, kept = open_images(names, path, reading, name=str(path))
    return Unlabelled(store, [names[position] for position in kept.tolist()])


def _table(path: Path, reading: Reading, columns: Sequence[str] | None) -> Unlabelled:
    return _named(*unlabelled_table(path, reading=reading, columns=columns))


def _named(store: InputStore, ids: Sequence[str] | None) -> Unlabelled:
    return Unlabelled(store, Positions(len(store)) if ids is None else ids)

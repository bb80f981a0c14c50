"""CIFAR-10 and CIFAR-100 in their original Python format, optionally with the human labels of CIFAR-N."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...registry import unknown
from ..labels import encode_labels
from ..source import Source
from .bundle import Bundle, benchmark_source
from .options import Reading
from .unpickle import load_arrays, unpickle

# The names of label sets in the CIFAR-N paper, and in its files.
HUMAN_10 = {
    "aggregate": "aggre_label",
    "worse": "worse_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
}
HUMAN_100 = {"noisy": "noisy_label"}
SIDE = 32  # of the images, in pixels


class Layout(NamedTuple):
    """The files and keys of a CIFAR."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    labels: str
    names: str
    human: dict[str, str]
    human_file: str


CIFAR10 = Layout(
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test=("test_batch",),
    meta="batches.meta",
    labels="labels",
    names="label_names",
    human=HUMAN_10,
    human_file="CIFAR-10_human.pt",
)
CIFAR100 = Layout(
    folder="cifar-100-python",
    train=("train",),
    test=("test",),
    meta="meta",
    labels="fine_labels",
    names="fine_label_names",
    human=HUMAN_100,
    human_file="CIFAR-100_human.pt",
)


def cifar10(
    root: Path, *, human: str | None = None, human_file: str | None = None, reading: Reading | None = None
) -> Bundle:
    """50,000 training and 10,000 test images of shape (3, 32, 32); with `size` 16 or 8, means over blocks of pixels.
    Every label counts as right, unless `human` names a label set of CIFAR-10N (aggregate, worse, random1-3): then those
    are the given labels, and the originals true."""
    return _cifar(root, CIFAR10, human, human_file, (reading or Reading()).size)


def cifar100(
    root: Path, *, human: str | None = None, human_file: str | None = None, reading: Reading | None = None
) -> Bundle:
    """The same with 100 classes; `human="noisy"` for the labels of CIFAR-100N."""
    return _cifar(root, CIFAR100, human, human_file, (reading or Reading()).size)


def _cifar(root: Path, layout: Layout, human: str | None, human_file: str | None, size: int | None) -> Bundle:
    if size is not None and SIDE % size:
        raise ValueError(f"size is {size}; {layout.folder} has images of {SIDE} × {SIDE}, from which 16, 8 or 4 follow")
    if human is not None and human not in layout.human:
        raise unknown("set of human labels", human, layout.human)
    folder = root if root.name == layout.folder else root / layout.folder
    missing = [name for name in (*layout.train, *layout.test, layout.meta) if not (folder / name).exists()]
    if missing:
        raise FileNotFoundError(
            f"{folder} has no {', '.join(missing)}; pass root= (--root): the folder that contains {layout.folder}, "
            "as unpacked from its archive (the version for Python)"
        )
    names = [_text(name) for name in unpickle(folder / layout.meta)[layout.names]]
    train = _part(folder, layout.train, layout, names, "train", size)
    test = _part(folder, layout.test, layout, names, "test", size)
    if human is not None:
        train = _with_human_labels(train, _human_path(root, layout, human_file), layout.human[human])
    return Bundle(train, test)


def _part(
    folder: Path, files: Sequence[str], layout: Layout, names: Sequence[str], split: str, size: int | None
) -> Source:
    pixels, labels = [], []
    for name in files:
        batch = unpickle(folder / name)
        if "data" not in batch or layout.labels not in batch:
            raise ValueError(f"{folder / name} has no data and {layout.labels}; it has {', '.join(batch)}")
        rows = np.asarray(batch["data"])
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072:
            raise ValueError(
                f"{folder / name} has pixels of shape {rows.shape} and type {rows.dtype}; (n, 3072) bytes expected"
            )
        pixels.append(_smaller(rows.reshape(-1, 3, SIDE, SIDE), size))
        labels.append(np.asarray(batch[layout.labels], dtype=np.int64))
    return benchmark_source(np.concatenate(pixels), np.concatenate(labels), names, split=split, name=layout.folder)


def _smaller(images: Any, size: int | None) -> Any:
    """Means over blocks of pixels, as bytes."""
    if size is None:
        return images
    blocks = images.reshape(len(images), 3, size, SIDE // size, size, SIDE // size)
    return np.rint(blocks.mean((3, 5), dtype=np.float32)).astype(np.uint8)


def _human_path(root: Path, layout: Layout, human_file: str | None) -> Path:
    if human_file is not None:
        return Path(human_file)
    for folder in (root, root / "data", root.parent):
        if (folder / layout.human_file).exists():
            return folder / layout.human_file
    raise FileNotFoundError(f"there is no {layout.human_file} in {root}; put it there, or name it with human_file=")


def _with_human_labels(train: Source, path: Path, key: str) -> Source:
    arrays = load_arrays(path)
    for wanted in ("clean_label", key):
        if wanted not in arrays:
            raise ValueError(f"{path} has no '{wanted}'; it has {', '.join(map(str, arrays))}")
    clean, given = (np.asarray(arrays[name], dtype=np.int64) for name in ("clean_label", key))
    if clean.shape != tuple(train.label.shape) or (clean != train.label.numpy()).any():
        differ = int((clean != train.label.numpy()).sum()) if clean.shape == tuple(train.label.shape) else "all"
        raise ValueError(
            f"the clean labels in {path} are not those of the data ({differ} of {len(train)} differ): the images are "
            "in another order than the original batches, so the human labels would be assigned to the wrong images"
        )
    return train.with_label(encode_labels(given, train.classes, path.name)[0])


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)

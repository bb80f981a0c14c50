"""CIFAR-10 as frozen features of a pretrained network, on which a laptop trains in seconds."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from .array_files import read_npz
from .bundle import Bundle, benchmark_source

FILE = "cifar10_features.npz"
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
KEYS = ("features_train", "labels_train", "features_test", "labels_test")


def cifar10_features(root: Path) -> Bundle:
    """Feature vectors in the order of the images. `root` is the .npz, or the folder that contains it."""
    path = root if root.suffix == ".npz" else root / FILE
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; pass root= (--root): the folder that contains {FILE}, or it")
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)  # a sweep opens the same file for every cell; sources are immutable
def _read(path: Path, changed: int) -> Bundle:
    arrays = read_npz(path)
    missing = [key for key in KEYS if key not in arrays]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}; it has {', '.join(arrays)}")
    parts = {}
    for split in ("train", "test"):
        features, label = arrays[f"features_{split}"].astype(np.float32), arrays[f"labels_{split}"].astype(np.int64)
        parts[split] = benchmark_source(features, label, NAMES, split=split, name=path.name)
    return Bundle(parts["train"], parts["test"])

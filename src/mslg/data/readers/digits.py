"""The handwritten digits of scikit-learn, small enough for a demo on any machine."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.seeds import numpy_generator
from ..source import make_source
from .bundle import Bundle

TRAIN = 1300


def digits(*, seed: int = 0) -> Bundle:
    """1,300 training and 497 test images of shape (1, 8, 8), split by the seed. Every label is right."""
    pixels, labels = _read()
    images = (pixels.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    order = numpy_generator(seed, "digits").permutation(len(images))
    train, test = order[:TRAIN], order[TRAIN:]
    return Bundle(
        make_source(
            images[train],
            labels[train],
            classes=[str(c) for c in range(10)],
            ids=[f"digit-{i}" for i in train],
            verified_labels=labels[train],
            name="digits",
        ),
        make_source(images[test], labels[test], ids=[f"digit-{i}" for i in test], name="digits"),
    )


def _read() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(1797, 64) pixels and (1797,) labels, from scikit-learn's file: importing the library takes seconds."""
    spec = find_spec("sklearn")
    folders = (spec.submodule_search_locations if spec is not None else None) or []
    for path in (Path(folder, "datasets", "data", "digits.csv.gz") for folder in folders):
        if path.is_file():
            with gzip.open(path, "rt", encoding="utf-8") as file:
                rows = np.loadtxt(file, delimiter=",")
            return rows[:, :-1], rows[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    data = load_digits()
    return data.data, data.target

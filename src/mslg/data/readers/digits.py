"""The handwritten digits of scikit-learn, small enough for a demo on any machine."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from ...runtime.seeds import numpy_generator
from ..source import make_source
from .bundle import Bundle

TRAIN = 1300


def digits(*, seed: int = 0) -> Bundle:
    """1,300 training and 497 test images of shape (1, 8, 8), split by the seed. Every label is right."""
    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)
    order = numpy_generator(seed, "digits").permutation(len(images))
    train, test = order[:TRAIN], order[TRAIN:]
    return Bundle(
        make_source(
            images[train],
            data.target[train],
            classes=[str(c) for c in range(10)],
            ids=[f"digit-{i}" for i in train],
            verified_labels=data.target[train],
            name="digits",
        ),
        make_source(images[test], data.target[test], ids=[f"digit-{i}" for i in test], name="digits"),
    )

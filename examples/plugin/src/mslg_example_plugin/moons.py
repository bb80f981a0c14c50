"""Two interleaving half circles in the plane."""

from __future__ import annotations

from sklearn.datasets import make_moons

from mslg.data.readers.bundle import Bundle
from mslg.data.source import make_source


def moons(*, samples: int = 600, spread: float = 0.15, seed: int = 0) -> Bundle:
    """As many training as test samples; every label is right."""
    parts = []
    for name, state in (("train", 2 * seed), ("test", 2 * seed + 1)):
        points, label = make_moons(samples, noise=spread, random_state=state)
        ids = [f"{name}-{seed}-{number}" for number in range(samples)]
        parts.append(
            make_source(
                points.astype("float32"), label, ids=ids, classes=["0", "1"], verified_labels=label, name="moons"
            )
        )
    return Bundle(*parts)

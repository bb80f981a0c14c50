"""The comparison of JPEG decoders, on a few files."""

from __future__ import annotations

import numpy as np

from benchmarks import decoding


def test_reduced_decoding_is_close_to_decoding_everything() -> None:
    random = np.random.default_rng(0)
    pictures = [decoding.jpeg(random.integers(0, 255, (32, 32, 3), dtype=np.uint8)) for _ in range(3)]
    decoders, missing = decoding.available()
    assert {*decoders, *missing} == set(decoding.MADE)
    small = decoding.measured(decoders, pictures, None, rounds=1)
    assert all(row["largest difference"] == 0 for name, row in small.items() if name.startswith("Pillow"))
    photo = decoding.measured(decoders, decoding.photos(1, pictures), decoding.FRAME, rounds=1)
    assert all(row["mean difference"] < 2 for row in photo.values())
    assert photo[decoding.REFERENCE]["of Pillow's"] == 1

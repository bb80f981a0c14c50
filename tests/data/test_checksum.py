"""Checksums of arrays: what an archive knows already, and what follows from it."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from mslg.data import stores
from mslg.data.checksum import crc_of_rest
from mslg.data.readers.arrays import npz
from mslg.data.source import make_source


@pytest.mark.parametrize("length", [0, 1, 7, 1000, 70_001])
def test_the_checksum_of_the_rest(length: int) -> None:
    random = np.random.default_rng(length)
    start, rest = random.bytes(128), random.bytes(length)
    assert crc_of_rest(zlib.crc32(start + rest), start, length) == zlib.crc32(rest)


@pytest.mark.parametrize("kind", ["f4", "f8", "f2", "u1", "u2", "i8", "?", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_archive_has_the_fingerprint_of_its_arrays(tmp_path: Path, kind: str, order: str) -> None:
    x = np.asarray(np.random.default_rng(0).integers(0, 100, (30, 4)).astype(kind), order=order)  # type: ignore[call-overload]
    y = np.arange(30) % 2
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "data.npz", X=x, y=y)
        assert npz(tmp_path / "data.npz").train.fingerprint() == make_source(x, y).fingerprint()
    x[29, 3] = 0 if x[29, 3] else 1
    np.savez(tmp_path / "other.npz", X=x, y=y)
    assert npz(tmp_path / "other.npz").train.fingerprint() != npz(tmp_path / "data.npz").train.fingerprint()


@pytest.mark.parametrize("kind", ["f4", "f8", "u1"])
def test_the_values_of_an_archive_are_not_gone_through_again(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "data.npz", X=np.ones((30, 4), kind), y=np.arange(30) % 2)

    def refuse(tensor: object) -> int:
        raise AssertionError("the archive has this checksum")

    monkeypatch.setattr(stores, "crc_of", refuse)
    assert len(npz(tmp_path / "data.npz").train.fingerprint()) == 16


def test_values_whose_sum_overflows_are_finite() -> None:
    assert len(make_source(np.full((4, 2), 3e38, "f4"), [0, 1, 0, 1])) == 4
    with pytest.raises(ValueError, match=r"NaN or infinite values in 1 of 4 samples, first at position 2"):
        make_source(np.array([[1], [2], [np.inf], [3]], "f4"), [0, 1, 0, 1])

"""Decoded images on disk: used only for the content they were made from, and only if complete."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mslg.data import images, pixel_cache
from mslg.data.image_stores import ImageStore
from mslg.data.images import Frame
from mslg.runs.run_data import open_run_data
from mslg.runs.settings import Settings

COUNT, FRAME = 6, Frame(8, 10, 1.0)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for number in range(COUNT):
        folder = tmp_path / "photos" / ("a" if number % 2 else "b")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (8, 10, 3), dtype=np.uint8)).save(folder / f"{number}.jpg")
    return tmp_path / "photos"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images that are really decoded."""
    found: list[str] = []
    original = images.pixels_of

    def counting(image: Any, frame: Any, channels: int) -> Any:
        found.append(image.format)
        return original(image, frame, channels)

    monkeypatch.setattr(images, "pixels_of", counting)
    return found


def store_of(photos: Path, *, workers: int = 0) -> ImageStore:
    paths = sorted(path.relative_to(photos).as_posix() for path in photos.glob("*/*.jpg"))
    return ImageStore(paths, photos, FRAME, workers=workers)


def pixels(store: ImageStore) -> torch.Tensor:
    return torch.cat(list(store.batches(torch.arange(len(store)).split(2))))


def cache_file(folder: Path) -> Path:
    (found,) = folder.glob("*.pixels")
    return found


def test_images_are_decoded_once_and_are_the_same(photos: Path, tmp_path: Path, decoded: list[str]) -> None:
    expected = pixels(store_of(photos))
    decoded.clear()
    for count in (COUNT, 0):  # the second store finds what the first has left
        store = store_of(photos)
        store.keep_decoded(tmp_path / "cache")
        assert torch.equal(pixels(store), expected)
        assert torch.equal(pixels(store.at(np.array([4, 1]))), expected[[4, 1]])
        assert len(decoded) == count
        decoded.clear()


def test_worker_processes_fill_and_use_the_same_file(photos: Path, tmp_path: Path, decoded: list[str]) -> None:
    store = store_of(photos, workers=2)
    store.keep_decoded(tmp_path / "cache")
    first = pixels(store)
    alone = store_of(photos)
    alone.keep_decoded(tmp_path / "cache")
    assert torch.equal(pixels(alone), first)
    assert not decoded  # in this process


def test_another_content_is_decoded_anew_and_in_the_same_run_an_error(
    photos: Path, tmp_path: Path, decoded: list[str]
) -> None:
    store = store_of(photos)
    store.keep_decoded(tmp_path / "cache")
    pixels(store)
    file = store.path(2)
    status = file.stat()
    Image.new("RGB", (10, 8), "red").save(file, quality=95)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # as if nothing had happened
    with pytest.raises(ValueError, match="is not what it was when this run first read it"):
        pixels(store)
    decoded.clear()
    later = store_of(photos)
    later.keep_decoded(tmp_path / "cache")
    red = pixels(later)[2].mean((1, 2))
    assert red[0] > 0.9 > 0.1 > red[1]
    assert len(decoded) == 0  # already by the run that complained


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_damaged_record_is_decoded_anew(damage: str, photos: Path, tmp_path: Path, decoded: list[str]) -> None:
    store = store_of(photos)
    store.keep_decoded(tmp_path / "cache")
    expected, file = pixels(store), cache_file(tmp_path / "cache")
    content = bytearray(file.read_bytes())
    if damage == "cut":
        del content[-7:]
    else:
        content[-7] ^= 1
    file.write_bytes(content)
    decoded.clear()
    assert torch.equal(pixels(store), expected)
    assert len(decoded) == 1


def test_nothing_is_kept_where_it_is_too_much(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_of(photos)
    monkeypatch.setenv(pixel_cache.SETTING, "1e-6")
    with caplog.at_level(logging.INFO, "mslg"):
        store.keep_decoded(tmp_path / "cache")
    assert store.kept is None
    assert "MSLG_PIXEL_CACHE=1 allows it" in caplog.text
    monkeypatch.setenv(pixel_cache.SETTING, "much")
    with pytest.raises(ValueError, match="MSLG_PIXEL_CACHE is 'much'; it must be a number of gigabytes"):
        store.keep_decoded(tmp_path / "cache")


def test_a_full_disk_stops_the_cache_and_not_the_run(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*given: Any) -> int:
        raise OSError(28, "No space left on device")

    store = store_of(photos)
    store.keep_decoded(tmp_path / "cache")
    monkeypatch.setattr(pixel_cache.os, "pwrite", full)
    assert torch.equal(pixels(store), pixels(store_of(photos)))
    assert caplog.text.count("no more decoded images are kept") == 1


def test_the_sets_used_last_stay(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    for age, name in enumerate(("new", "old")):
        (folder / f"{name}.pixels").write_bytes(bytes(4096))
        os.utime(folder / f"{name}.pixels", (1e9 - age, 1e9 - age))
    monkeypatch.setenv(pixel_cache.SETTING, str((6000 + COUNT * (12 + 240)) / 1e9))
    store_of(photos).keep_decoded(folder)
    assert (folder / "new.pixels").exists()
    assert not (folder / "old.pixels").exists()


def test_runs_on_pixels_keep_decoded_images(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslg.data.readers.image_files.IN_MEMORY", 0)
    monkeypatch.setenv("MSLG_CACHE", str(tmp_path / "cache"))
    table = {"source": str(photos), "features": "none"}
    _, data = open_run_data(Settings.of({"data": table, "method": {"name": "cross-entropy"}}))
    assert isinstance(data.train.store, ImageStore)
    assert data.train.store.kept is not None
    assert cache_file(tmp_path / "cache" / "pixels").exists()

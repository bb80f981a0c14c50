"""Image files: decoded in the order asked for, the same with any number of workers; broken ones reported together."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mslg.data.image_stores import ImageStore, MemoryImages
from mslg.data.images import Frame, Unreadable, look, read
from mslg.data.make_splits import make_splits
from mslg.data.readers import image_files
from mslg.data.readers.image_files import open_images
from mslg.data.readers.options import Reading
from mslg.data.source import make_source
from tests.support import trees


@pytest.fixture
def lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "IN_MEMORY", 0)


def some(root: Path, count: int = 10, size: tuple[int, int] = (20, 20)) -> list[str]:
    for number in range(count):
        trees.picture(root / f"{number}.png", number % 3, number, size)
    return [f"{number}.png" for number in range(count)]


def opened(paths: list[str], root: Path, **reading: object) -> ImageStore | MemoryImages:
    return open_images(paths, root, Reading(**reading), name="data")[0]  # type: ignore[arg-type]


def test_few_images_are_decoded_once_and_many_lazily_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = some(tmp_path)
    groups = [torch.tensor([3, 1]), torch.tensor([0, 9, 4])]
    memory = opened(paths, tmp_path)
    assert isinstance(memory, MemoryImages)
    assert memory.tensors.dtype == torch.uint8
    monkeypatch.setattr(image_files, "IN_MEMORY", 0)
    lazy = opened(paths, tmp_path, workers=0)
    assert isinstance(lazy, ImageStore)
    for one, other in zip(memory.batches(groups), lazy.batches(groups), strict=True):
        assert torch.equal(one, other)
    expected = torch.from_numpy(trees.pixels(0, 3).transpose(2, 0, 1).astype(np.float32)) / 255
    assert torch.allclose(next(iter(lazy.batches(groups)))[0], expected)


def test_threads_change_nothing_but_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "AT_ONCE", 4)
    paths = some(tmp_path, 30)
    (tmp_path / "17.png").write_bytes(b"broken")
    one, several = (opened(paths, tmp_path, workers=workers, corrupt="skip") for workers in (0, 3))
    assert isinstance(one, MemoryImages)
    assert isinstance(several, MemoryImages)
    assert len(several) == 29
    assert several.path(17).name == "18.png"
    assert torch.equal(one.tensors, several.tensors)


@pytest.mark.usefixtures("lazily")
def test_worker_processes_change_nothing_but_the_time(tmp_path: Path) -> None:
    paths = some(tmp_path, 30)
    groups = list(torch.randperm(30, generator=torch.Generator().manual_seed(1)).split(4))
    alone = list(opened(paths, tmp_path, workers=0).batches(groups))
    before = torch.get_rng_state()
    together = list(opened(paths, tmp_path, workers=2).batches(iter(groups)))
    assert torch.equal(before, torch.get_rng_state()), "no random number is drawn"
    assert len(alone) == len(together)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


@pytest.mark.usefixtures("lazily")
def test_endless_clean_batches_are_read_ahead_by_workers(tmp_path: Path) -> None:
    some(tmp_path, 12)
    streams = []
    for workers in (0, 2):
        store = opened([f"{i}.png" for i in range(12)], tmp_path, workers=workers)
        source = make_source(np.zeros((12, 1)), np.arange(12) % 3)
        data = make_splits(source, None, batch_size=4, clean_batch_size=4)
        clean = data.train.__class__(store, torch.arange(12), source.label)
        stream = data.__class__(data.train, clean, None, None, clean_batch_size=4).clean_batches(0, start=2)
        streams.append([next(stream) for _ in range(5)])
        assert stream.position == 7
    for one, other in zip(*streams, strict=True):
        assert torch.equal(one.index, other.index)
        assert torch.equal(one.inputs, other.inputs)


def test_images_of_one_size_stay_and_others_become_224(tmp_path: Path) -> None:
    paths = some(tmp_path, 4, (20, 30))
    assert opened(paths, tmp_path).frame == Frame(30, 20)
    assert opened(paths, tmp_path, size=16).frame == Frame(16, 16, 256 / 224)
    trees.picture(tmp_path / "wide.png", 0, size=(60, 30))
    store = opened([*paths, "wide.png"], tmp_path)
    (batch,) = store.batches([torch.tensor([0, 4])])
    assert batch.shape == (2, 3, 224, 224)
    assert store.frame == Frame(224, 224, 256 / 224)


def test_the_short_side_is_scaled_and_the_middle_kept(tmp_path: Path) -> None:
    array = np.zeros((50, 100, 3), np.uint8)
    array[:, 50:] = 255
    Image.fromarray(array).save(tmp_path / "half.png")
    found = read(tmp_path / "half.png", Frame(224, 224, 256 / 224), 1)
    assert not isinstance(found, Unreadable)
    assert found.shape == (1, 224, 224)
    assert found[0, :, :100].max() == 0, "as much of the left half as of the right one"
    assert found[0, :, 124:].min() == 255


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "CMYK", "LA", "I;16"])
def test_every_kind_of_image_becomes_red_green_blue(mode: str, tmp_path: Path) -> None:
    ending = "tif" if mode in ("CMYK", "I;16") else "png"
    image = Image.fromarray(np.full((9, 9), 128 * 256, np.uint16)) if mode == "I;16" else Image.new(mode, (9, 9))
    image.save(tmp_path / f"x.{ending}")
    found = read(tmp_path / f"x.{ending}", None, 3)
    assert not isinstance(found, Unreadable)
    assert found.shape == (3, 9, 9)
    if mode == "I;16":
        assert found.max() == 128


@pytest.mark.parametrize("ending", ["jpg", "png", "bmp", "gif", "tif", "webp"])
def test_a_quick_look_finds_a_truncated_file(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{ending}"
    trees.picture(path, 0, size=(64, 48))
    assert look(path) == (64, 48)
    trees.truncate(path)
    assert isinstance(look(path), Unreadable)


def test_all_unreadable_images_are_reported_together(tmp_path: Path) -> None:
    paths = some(tmp_path, 20)
    for number in range(4, 15):
        trees.truncate(tmp_path / f"{number}.png")
    (tmp_path / "15.png").write_text("no image")
    (tmp_path / "16.png").unlink()
    with pytest.raises(ValueError) as caught:
        opened(paths, tmp_path)
    text = str(caught.value)
    assert "13 of 20 image files of data cannot be read" in text
    assert "--corrupt skip" in text
    assert str(tmp_path / "4.png") in text
    assert "and 3 more" in text


@pytest.mark.parametrize("memory", [0, image_files.IN_MEMORY])
def test_unreadable_images_are_left_out_when_asked(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(image_files, "IN_MEMORY", memory)
    paths = some(tmp_path, 6)
    trees.truncate(tmp_path / "2.png")
    (tmp_path / "4.png").unlink()
    with caplog.at_level(logging.WARNING, logger="mslg"):
        store, kept = open_images(paths, tmp_path, Reading(corrupt="skip", workers=0), name="data")
    assert kept.tolist() == [0, 1, 3, 5]
    assert len(store) == 4
    assert store.path(2) == tmp_path / "3.png"
    assert caplog.messages == ["data: skipping 2 of 6 image files that cannot be read"]


def test_damage_in_the_middle_is_found_when_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = some(tmp_path, 4)
    content = bytearray((tmp_path / "1.png").read_bytes())
    content[60:200] = bytes(140)
    (tmp_path / "1.png").write_bytes(content)
    with pytest.raises(ValueError, match="1 of 4 image files of data cannot be read"):
        opened(paths, tmp_path)
    monkeypatch.setattr(image_files, "IN_MEMORY", 0)
    for workers in (0, 2):
        store = opened(paths, tmp_path, workers=workers)
        with pytest.raises(ValueError, match=r"1\.png cannot be read as an image .*`mslg check` lists") as caught:
            list(store.batches([torch.tensor([0]), torch.tensor([1]), torch.tensor([2])]))
        assert "Traceback" not in str(caught.value)


def test_when_nothing_can_be_read_the_folder_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none of the 2 image files of data can be read; the first is .*no such file"):
        opened(["a.png", "b.png"], tmp_path, corrupt="skip")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"corrupt": "skpi"}, "unknown value of corrupt 'skpi'. Did you mean 'skip'?"),
        ({"channels": 2}, "channels is 2; images are read with 1 channel"),
        ({"size": 0}, "size is 0; the side of the images must be at least 1 pixel"),
        ({"workers": -1}, "workers is -1; it must be 0"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Reading(**setting)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.slow
def test_the_loader_is_not_the_bottleneck_on_20000_files(tmp_path: Path) -> None:
    from mslg.data.readers.folder import folder
    from mslg.networks.cnn import CNN8

    random = np.random.default_rng(0)
    for number in range(20_000):
        if number % 1000 < 10:  # fresh pixels now and then: making noise takes longer than the files
            content = Image.fromarray(random.integers(0, 255, (96, 96, 3), dtype=np.uint8))
        path = tmp_path / str(number % 10) / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        content.save(path)
    begun = time.perf_counter()
    source = folder(tmp_path, reading=Reading(workers=2)).train
    print(f"opened 20,000 files in {time.perf_counter() - begun:.1f} s")
    assert isinstance(source.store, ImageStore)
    network = CNN8(10)
    data = make_splits(source, None, batch_size=64)
    waiting = working = 0.0
    batches = data.batches(0)
    next(batches)
    mark = time.perf_counter()
    for _ in range(12):
        batch = next(batches)
        got = time.perf_counter()
        torch.nn.functional.cross_entropy(network(batch.inputs), batch.label).backward()
        waiting, working, mark = waiting + got - mark, working + time.perf_counter() - got, time.perf_counter()
    print(f"waited {100 * waiting / (waiting + working):.1f} % of the time")
    assert waiting / (waiting + working) < 0.1

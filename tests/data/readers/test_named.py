"""The named data sets: header lines, flags, both kinds of labels, and files that are not what they seem."""

from __future__ import annotations

import codecs
import logging
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mslg.data.make_splits import make_splits
from mslg.data.open import open_named
from mslg.data.readers.cifar import cifar10, cifar100
from mslg.data.readers.digits import digits
from mslg.data.readers.fashion_mnist import fashion_mnist
from mslg.data.readers.options import Reading
from mslg.data.readers.unpickle import load_arrays, unpickle
from mslg.runs.open_data import open_data
from tests.support import trees


class Exploit:
    """What a hostile file would do when it is opened."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    expected = load_digits()
    bundle = digits(seed=3)
    for source in (bundle.train, bundle.test):
        assert source is not None
        order = [int(name.removeprefix("digit-")) for name in source.ids]
        images = next(source.store.batches([torch.arange(len(source))]))
        assert torch.equal(images[:, 0], torch.from_numpy(expected.images[order]).float() / 16)
        assert source.label.tolist() == expected.target[order].tolist()


def test_cifar_images_of_another_size_are_means_over_blocks_of_pixels(tmp_path: Path) -> None:
    root = trees.cifar10(tmp_path)
    (whole,) = open_named("cifar10", root=root).train.store.batches([torch.arange(30)])
    (small,) = open_named("cifar10", root=root, reading=Reading(size=8)).train.store.batches([torch.arange(30)])
    assert small.shape == (30, 3, 8, 8)
    for image, channel, row, column in ((0, 0, 0, 0), (7, 2, 3, 5)):
        block = whole[image, channel, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        assert abs(float(block.mean() - small[image, channel, row, column])) <= 0.5 / 255 + 1e-6
    with pytest.raises(ValueError, match="size is 12; cifar-10-batches-py has images of 32 × 32"):
        open_named("cifar10", root=root, reading=Reading(size=12))


def test_cifar_pixels_are_three_planes_in_rows(tmp_path: Path) -> None:
    train = cifar10(trees.cifar10(tmp_path)).train
    (batch,) = train.store.batches([torch.tensor([0, 7])])
    assert batch.shape == (2, 3, 32, 32)
    assert torch.allclose(batch[0], torch.from_numpy(trees.pixels(0, 0, (32, 32)).transpose(2, 0, 1) / 255).float())
    assert train.classes[3] == "class3"
    assert train.ids[7] == "train-7"
    assert len(train) == 30


def test_the_folder_itself_may_be_the_root(tmp_path: Path) -> None:
    assert len(cifar10(trees.cifar10(tmp_path) / "cifar-10-batches-py").train) == 30
    assert cifar100(trees.cifar100(tmp_path)).train.classes[-1] == "fine99"


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_arrays_of_every_pickle_protocol_are_read(protocol: int, tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    (tmp_path / "x").write_bytes(pickle.dumps({b"data": array, "labels": [1, 2], "n": np.int64(3)}, protocol))
    found = unpickle(tmp_path / "x")
    assert np.array_equal(found["data"], array)
    assert found["labels"] == [1, 2]


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_code_is_refused(protocol: int, tmp_path: Path) -> None:
    root = trees.cifar10(tmp_path)
    batch = {b"data": Exploit(tmp_path / "harm"), b"labels": [0]}
    (root / "cifar-10-batches-py" / "data_batch_3").write_bytes(pickle.dumps(batch, protocol))
    with pytest.raises(ValueError, match=r"data_batch_3 is refused: .*it loads .*mkdir, which no array needs"):
        cifar10(root)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("function", [eval, getattr, codecs.lookup, np.load, subprocess.Popen])
def test_only_what_rebuilds_arrays_may_be_loaded(function: Any, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(pickle.dumps({"data": function}))
    with pytest.raises(ValueError, match="which no array needs"):
        unpickle(tmp_path / "x")


def test_a_broken_or_foreign_batch_is_named(tmp_path: Path) -> None:
    root = trees.cifar10(tmp_path)
    folder = root / "cifar-10-batches-py"
    (folder / "data_batch_2").write_bytes(b"\x80\x04junk")
    with pytest.raises(ValueError, match=r"data_batch_2 is refused: it is no plain batch of arrays"):
        cifar10(root)
    (folder / "data_batch_2").write_bytes(pickle.dumps({"data": np.zeros((2, 5), np.uint8), "labels": [0, 1]}))
    with pytest.raises(ValueError, match=r"has pixels of shape \(2, 5\)"):
        cifar10(root)
    (folder / "data_batch_2").write_bytes(pickle.dumps({"pixels": 1}))
    with pytest.raises(ValueError, match="has no data and labels; it has pixels"):
        cifar10(root)
    (folder / "data_batch_2").unlink()
    with pytest.raises(FileNotFoundError, match="has no data_batch_2; pass root="):
        cifar10(root)


def test_human_labels_are_given_and_the_clean_ones_true(tmp_path: Path) -> None:
    root = trees.cifar10(tmp_path)
    clean = cifar10(root).train.label
    trees.human_labels(root, clean.numpy())
    train = cifar10(root, human="worse").train
    assert train.true_label is not None
    assert torch.equal(train.true_label, clean)
    assert (train.label != clean).nonzero().flatten().tolist() == list(range(0, 30, 3))
    assert torch.equal(cifar10(root, human="aggregate").train.label, clean)
    data = make_splits(train, 10)
    assert data.clean is not None
    assert torch.equal(data.clean.label, clean[data.clean.index])


def test_human_labels_in_another_order_are_refused(tmp_path: Path) -> None:
    root = trees.cifar10(tmp_path)
    clean = cifar10(root).train.label.numpy()
    trees.human_labels(root, clean[::-1].copy())
    with pytest.raises(ValueError, match=r"not those of the data .* the images are in another order"):
        cifar10(root, human="worse")
    trees.human_labels(root, clean[:-1])
    with pytest.raises(ValueError, match="all of 30 differ"):
        cifar10(root, human="worse")


def test_human_labels_are_asked_for_by_name(tmp_path: Path) -> None:
    root = trees.cifar10(tmp_path)
    with pytest.raises(ValueError, match=r"unknown set of human labels 'worst'. Did you mean 'worse'\?"):
        cifar10(root, human="worst")
    with pytest.raises(FileNotFoundError, match=r"there is no CIFAR-10_human.pt in .*human_file="):
        cifar10(root, human="worse")
    clean = cifar10(root).train.label.numpy()
    trees.human_labels(root, clean)
    settings = {"source": "cifar10", "root": str(root), "human": "worse"}
    assert open_data(settings).train.true_label is not None
    with pytest.raises(ValueError, match=r"unknown setting of digits 'human'"):
        open_data({"source": "digits", "human": "worse"})
    (tmp_path / "c100").mkdir()
    c100 = trees.cifar100(tmp_path / "c100")
    trees.human_labels(c100, cifar100(c100).train.label.numpy(), "CIFAR-100_human.pt")
    assert cifar100(c100, human="noisy").train.true_label is not None


def test_human_labels_that_would_run_code_are_refused(tmp_path: Path) -> None:
    torch.save({"clean_label": Exploit(tmp_path / "harm")}, tmp_path / "x.pt")
    with pytest.raises(ValueError, match=r"x.pt is refused: it is no plain dict of arrays"):
        load_arrays(tmp_path / "x.pt")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("compressed", [True, False])
def test_fashion_mnist_packed_or_not(compressed: bool, tmp_path: Path) -> None:
    train = fashion_mnist(trees.fashion_mnist(tmp_path / "FashionMNIST" / "raw", compressed).parents[1]).train
    (batch,) = train.store.batches([torch.tensor([4])])
    assert batch.shape == (1, 1, 28, 28)
    assert batch[0, 0, 0].tolist() == pytest.approx([100 / 255] * 28)


def test_idx_files_that_lie_are_named(tmp_path: Path) -> None:
    root = trees.fashion_mnist(tmp_path, compressed=False)
    path = root / "train-images-idx3-ubyte"
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    with pytest.raises(ValueError, match=r"holds 23515 values; its header says \(30, 28, 28\)"):
        fashion_mnist(root)
    path.write_bytes(b"\x1f\x8b" + content)
    with pytest.raises(ValueError, match="begins with 1f8b0000; an idx file of bytes begins with 00000803"):
        fashion_mnist(root)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="has no train-images-idx3-ubyte or"):
        fashion_mnist(root)


@pytest.mark.parametrize(("annotations", "prefix"), [(False, True), (True, True), (True, False), (False, False)])
def test_clothing1m_takes_each_label_from_the_file_of_its_list(annotations: bool, prefix: bool, tmp_path: Path) -> None:
    root = trees.clothing1m(tmp_path / "c", annotations=annotations, prefix=prefix)
    found = open_named("clothing1m", root=root)
    assert found.test is not None
    assert found.train.classes == tuple(f"Name{i}" for i in range(14))
    assert (len(found.train), len(found.test)) == (28, 14)
    assert set(found.clean) == {"clean-train", "clean-val"}
    both = found.train.ids[0]
    assert "," in both
    assert both.startswith("images/")
    assert int(found.train.label[0]) == 0
    assert found.train.verified_label is not None
    assert found.train.verified_label.tolist() == [5] + [-1] * 27
    value = found.clean["clean-val"]
    assert len(value) == 15
    assert int(value.label[value.ids.index(both)]) == 5


def test_clothing1m_moves_what_is_in_both_lists_to_the_clean_set(tmp_path: Path) -> None:
    settings = {"source": "clothing1m", "root": str(trees.clothing1m(tmp_path / "c")), "clean": "clean-val"}
    opened = open_data(settings)
    data = make_splits(opened.train, opened.clean)  # type: ignore[arg-type]
    assert len(data.train) == 27
    assert data.pairs is not None
    assert [labels.tolist() for labels in data.pairs] == [[0], [5]]
    with pytest.raises(ValueError, match=r"unknown clean set 'clean-vall'. Did you mean 'clean-val'\?"):
        open_data({**settings, "clean": "clean-vall"})


def test_clothing1m_does_not_train_on_its_test_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = trees.clothing1m(tmp_path / "c")
    test = (root / "clean_test_key_list.txt").read_text().splitlines()
    for name, line in {"noisy_train_key_list.txt": test[0], "noisy_label_kv.txt": f"{test[0]} 3"}.items():
        (root / name).write_text((root / name).read_text() + line + "\n")
    with caplog.at_level(logging.WARNING, logger="mslg"):
        found = open_named("clothing1m", root=root)
    assert test[0] not in found.train.ids
    assert "1 images of the test list are left out of training" in caplog.text


def test_clothing1m_without_a_label_or_out_of_range_is_named(tmp_path: Path) -> None:
    root = trees.clothing1m(tmp_path / "c")
    labels = root / "noisy_label_kv.txt"
    rows = labels.read_text().splitlines()
    labels.write_text("\n".join(rows[:-1]))
    with pytest.raises(
        ValueError, match=r"noisy_train_key_list.txt names .* for which noisy_label_kv.txt has no label"
    ):
        open_named("clothing1m", root=root)
    labels.write_text("\n".join([*rows[:-1], rows[-1].rsplit(" ", 1)[0] + " 14"]))
    with pytest.raises(
        ValueError, match=r"has the label 14 \(1 such lines\); labels must be whole numbers from 0 to 13"
    ):
        open_named("clothing1m", root=root)
    labels.write_text("\n".join([*rows[:-1], "images/x.jpg"]))
    with pytest.raises(ValueError, match=r"has the line 'images/x.jpg'; '<path> <class number>' was expected"):
        open_named("clothing1m", root=root)


def test_food101n_flags_say_whether_the_folder_is_right(tmp_path: Path) -> None:
    found = open_named("food101n", root=trees.food101n(tmp_path))
    assert found.test is not None
    assert found.train.classes == ("apple_pie", "baby_back_ribs", "waffles"), "the heading is no class"
    assert len(found.train) == 27, "nine of eleven: those for validation are not trained on, right or wrong"
    assert found.train.verified_label is not None
    assert found.train.verified_label.tolist() == [-1] * 7 + [0, 0] + [-1] * 7 + [1, 1] + [-1] * 7 + [2, 2]
    assert found.test.label.tolist() == [0, 1, 2]
    data = make_splits(found.train, 6)
    assert data.clean is not None
    assert data.clean.label.tolist() == [0, 0, 1, 1, 2, 2]


def test_food101n_may_be_tested_on_food101(tmp_path: Path) -> None:
    root = trees.food101n(tmp_path / "n")
    settings = {"source": "food101n", "root": str(root), "food101": str(trees.food101(tmp_path / "f"))}
    opened = open_data(settings)
    assert opened.test is not None
    assert len(opened.train) == 33
    assert opened.train.verified_label is not None
    assert int((opened.train.verified_label >= 0).sum()) == 9
    assert opened.test.ids[:2] == ("apple_pie/100", "apple_pie/101")
    assert opened.test.label.tolist() == [0, 0, 1, 1, 2, 2]
    (train,), (test,) = (list(source.store.batches([torch.tensor([0])])) for source in (opened.train, opened.test))
    assert train.shape == test.shape


def test_animal10n_labels_are_before_the_first_underscore(tmp_path: Path) -> None:
    root = trees.animal10n(tmp_path)
    found = open_named("animal10n", root=root)
    assert found.train.classes[9] == "guinea pig"
    assert list(found.train.ids) == sorted(found.train.ids)
    assert [int(name.split("/")[1].split("_")[0]) for name in found.train.ids] == found.train.label.tolist()
    assert found.train.verified_label is None
    trees.picture(root / "raw_image" / "training" / "cat.jpg", 0)
    with pytest.raises(ValueError, match=r"cat.jpg has no label from 0 to 9 before the first '_'"):
        open_named("animal10n", root=root / "raw_image")


def test_webvision_is_its_first_fifty_classes_unless_asked(tmp_path: Path) -> None:
    root = trees.webvision(tmp_path)
    mini = open_named("webvision", root=root)
    assert mini.test is not None
    assert (len(mini.train), len(mini.test), len(mini.train.classes)) == (18, 6, 50)
    assert int(mini.train.label.max()) == 49
    full = open_named("webvision", root=root, options={"mini": False})
    assert (len(full.train), len(full.train.classes)) == (48, 1000)


def test_large_sets_are_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mslg.data.image_stores import ImageStore
    from mslg.data.readers import image_files

    monkeypatch.setattr(image_files, "IN_MEMORY", 0)
    for name in ("clothing1m", "food101n", "animal10n", "webvision"):
        store = open_named(name, root=trees.NAMED[name](tmp_path / name), reading=Reading(workers=0)).train.store
        assert isinstance(store, ImageStore)


@pytest.mark.parametrize("name", trees.NAMED)
def test_a_missing_root_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{name} needs the folder of its files: pass root= \(--root\)"):
        open_named(name)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nothing; pass root="):
        open_named(name, root=tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="pass root="):
        open_named(name, root=tmp_path)


DATA = os.environ.get("MSLG_TEST_DATA")


@pytest.mark.skipif(DATA is None, reason="MSLG_TEST_DATA is not set: no real CIFAR-10 to load")
def test_real_cifar10_loads_in_seconds(tmp_path: Path) -> None:
    assert DATA is not None
    subprocess.run(
        [sys.executable, str(Path(DATA) / "make_cifar10.py"), str(tmp_path)], check=True, capture_output=True
    )
    begun = time.perf_counter()
    found = cifar10(tmp_path)
    took = time.perf_counter() - begun
    print(f"real CIFAR-10 in {took:.2f} s")
    assert found.test is not None
    assert (len(found.train), len(found.test)) == (50_000, 10_000)
    assert torch.bincount(found.train.label).tolist() == [5000] * 10
    assert np.array_equal(found.train.label.numpy(), np.load(Path(DATA) / "cifar10_train_labels.npy"))
    assert found.train.classes[:2] == ("airplane", "automobile")
    assert took < 5


@pytest.mark.skipif(DATA is None, reason="MSLG_TEST_DATA is not set: no real features to load")
def test_real_features_load(tmp_path: Path) -> None:
    found = open_named("cifar10-features", root=DATA)
    assert found.test is not None
    (batch,) = found.train.store.batches([torch.arange(3)])
    assert batch.shape == (3, 256)
    assert batch.dtype == torch.float32
    assert (len(found.train), len(found.test)) == (50_000, 10_000)

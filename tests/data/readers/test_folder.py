"""Image folders: classes from folder names, everything that is no image left alone, mistakes named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mslg.data.readers.folder import folder
from mslg.data.readers.options import Reading
from tests.support import trees

READING = Reading()


def test_classes_are_sorted_folders_and_ids_are_paths(tmp_path: Path) -> None:
    trees.image_folder(tmp_path, ("zebra", "ant"), each=2)
    trees.picture(tmp_path / "ant" / "deeper" / "still" / "x.PNG", 0, 7)
    (tmp_path / "ant" / "notes.txt").write_text("not an image")
    (tmp_path / "ant" / ".hidden.jpg").write_text("not looked at")
    trees.picture(tmp_path / ".cache" / "y.png", 0)
    found = folder(tmp_path, reading=READING)
    assert found.test is None
    assert found.train.classes == ("ant", "zebra")
    assert found.train.ids == ("ant/0.jpg", "ant/1.png", "ant/deeper/still/x.PNG", "zebra/0.jpg", "zebra/1.png")
    assert found.train.label.tolist() == [0, 0, 0, 1, 1]


def test_train_and_test_folders_are_splits(tmp_path: Path) -> None:
    trees.image_folder(tmp_path / "train")
    trees.image_folder(tmp_path / "test", ("ant", "cat"), each=2, start=100)
    found = folder(tmp_path, reading=READING)
    assert found.test is not None
    assert len(found.train) == 24
    assert found.test.ids == ("test/ant/100.jpg", "test/ant/101.png", "test/cat/100.jpg", "test/cat/101.png")
    assert found.test.label.tolist() == [0, 0, 2, 2]


def test_a_test_class_that_is_never_trained_on_is_still_a_class(tmp_path: Path) -> None:
    trees.image_folder(tmp_path / "train", ("a", "b"))
    trees.image_folder(tmp_path / "test", ("c",), start=100)
    found = folder(tmp_path, reading=READING)
    assert found.train.classes == ("a", "b", "c")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    trees.image_folder(tmp_path, each=1)
    (tmp_path / "ant" / "again").symlink_to(tmp_path, target_is_directory=True)
    assert len(folder(tmp_path, reading=READING).train) == 3


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nothing; pass one that contains a folder of"):
        folder(tmp_path / "nothing", reading=READING)
    with pytest.raises(ValueError, match=r"has no images in folders; expected .*/<class>/<name>, names ending in .jpg"):
        folder(tmp_path, reading=READING)
    trees.picture(tmp_path / "one" / "x.png", 0)
    with pytest.raises(ValueError, match="has images of one class only, 'one'; a classifier needs at least two"):
        folder(tmp_path, reading=READING)
    trees.picture(tmp_path / "loose.png", 0)
    with pytest.raises(
        ValueError, match=r"loose.png is in no class folder; put each image into a folder named after its class"
    ):
        folder(tmp_path, reading=READING)

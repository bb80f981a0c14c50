"""What a user names as data and as clean data."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from mslg.data.image_stores import frame_of
from mslg.data.images import Frame
from mslg.data.make_splits import make_splits
from mslg.data.open import open_named
from mslg.data.source import Source
from mslg.runs.open_data import open_data
from mslg.runs.run_data import open_run_data
from mslg.runs.settings import Settings
from tests.support import trees


def test_names_that_are_nothing(tmp_path: Path) -> None:
    (tmp_path / "data.docx").write_text("x")
    with pytest.raises(ValueError, match=r"data.docx has no supported format; pass an image folder, a .csv"):
        open_named(str(tmp_path / "data.docx"))
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*photos; pass an image folder"):
        open_named(str(tmp_path / "photos"))
    with pytest.raises(FileNotFoundError, match=r"there is no file .*data.csv"):
        open_named(str(tmp_path / "data.csv"))
    with pytest.raises(ValueError, match=r"unknown data set 'cifar-10'. Did you mean 'cifar10'\?"):
        open_named("cifar-10")
    with pytest.raises(ValueError, match="human: only registered data sets have such settings"):
        open_named(str(trees.npz(tmp_path)), options={"human": "worse"})


def test_clean_images_take_the_shape_of_the_training_images(tmp_path: Path) -> None:
    noisy = trees.image_folder(tmp_path / "noisy")
    for label, name in enumerate(("ant", "bee", "cat")):
        trees.picture(tmp_path / "clean" / name / "big.png", label, 50, (60, 40))
    opened = open_data({"source": str(noisy), "clean": str(tmp_path / "clean")})
    assert isinstance(opened.clean, Source)
    assert frame_of(opened.clean.store) == frame_of(opened.train.store) == Frame(20, 20)


def test_a_clean_folder_may_lack_classes_and_keeps_their_numbers(tmp_path: Path) -> None:
    noisy = trees.image_folder(tmp_path / "noisy")
    trees.image_folder(tmp_path / "clean", ("bee", "cat"), each=2, start=100)
    clean = open_data({"source": str(noisy), "clean": str(tmp_path / "clean")}).clean
    assert isinstance(clean, Source)
    assert clean.classes == ("ant", "bee", "cat")
    assert clean.label.tolist() == [1, 1, 2, 2]


def test_the_same_path_in_two_folders_is_the_same_sample_only_if_the_files_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    noisy = trees.image_folder(tmp_path / "noisy")
    clean = tmp_path / "clean"
    for label, name in enumerate(("ant", "bee", "cat")):
        trees.picture(clean / name / "0.jpg", label, 500)  # another image of the same name
        (clean / name / "1.png").write_bytes((noisy / name / "1.png").read_bytes())
    with caplog.at_level(logging.INFO, logger="mslg"):
        opened = open_data({"source": str(noisy), "clean": str(clean)})
    assert isinstance(opened.clean, Source)
    assert opened.clean.ids[:2] == ("clean/ant/0.jpg", "ant/1.png")
    assert "3 ids (paths) occur in both sets for different images: they are kept apart" in caplog.text
    data = make_splits(opened.train, opened.clean)
    assert len(data.train) == 21
    assert data.pairs is not None
    assert len(data.pairs[0]) == 3


def test_a_file_put_into_another_class_is_the_same_sample_with_both_labels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    noisy = trees.image_folder(tmp_path / "noisy")
    clean = trees.image_folder(tmp_path / "clean", each=1, start=100)
    (clean / "bee" / "1.png").write_bytes((noisy / "ant" / "1.png").read_bytes())
    trees.picture(noisy / "cat" / "deep" / "lost.png", 1, 300)
    trees.picture(clean / "bee" / "deep" / "lost.png", 1, 300)
    with caplog.at_level(logging.INFO, logger="mslg"):
        opened = open_data({"source": str(noisy), "clean": str(clean)})
    assert isinstance(opened.clean, Source)
    assert opened.clean.ids == ("ant/100.jpg", "ant/1.png", "bee/100.jpg", "cat/deep/lost.png", "cat/100.jpg")
    assert "2 images of the clean set are in the data under another class" in caplog.text
    data = make_splits(opened.train, opened.clean)
    assert data.pairs is not None
    assert [labels.tolist() for labels in data.pairs] == [[0, 2], [1, 1]]


def test_a_verified_copy_under_another_name_is_the_same_sample(tmp_path: Path) -> None:
    noisy = trees.image_folder(tmp_path / "noisy")
    clean = trees.image_folder(tmp_path / "clean", each=1, start=100)
    (clean / "bee" / "seen by Eve.png").write_bytes((noisy / "ant" / "1.png").read_bytes())
    opened = open_data({"source": str(noisy), "clean": str(clean)})
    assert isinstance(opened.clean, Source)
    assert opened.clean.ids == ("ant/100.jpg", "bee/100.jpg", "ant/1.png", "cat/100.jpg")


def test_a_random_check_is_a_clean_set_with_given_and_verified_labels(tmp_path: Path) -> None:
    noisy = trees.image_folder(tmp_path / "noisy")
    checked = tmp_path / "audit.csv"
    checked.write_text("id,decision,label\nant/1.png,relabel,bee\ncat/2.jpg,keep,cat\nbee/3.png,skip,\n")
    opened = open_data({"source": str(noisy), "clean": str(checked)})
    data = make_splits(opened.train, opened.clean)  # type: ignore[arg-type]
    assert len(data.train) == 22
    assert data.pairs is not None
    assert [labels.tolist() for labels in data.pairs] == [[0, 2], [1, 2]]
    checked.write_text("id,decision,label\nant/99.png,keep,ant\n")
    with pytest.raises(ValueError, match=r"names the sample 'ant/99\.png', which is not in the data"):
        open_data({"source": str(noisy), "clean": str(checked)})
    checked.write_text("id,decision,label\nant/1.png,skip,\n")
    with pytest.raises(ValueError, match="has no decision that verifies a label"):
        open_data({"source": str(noisy), "clean": str(checked)})


def test_verified_labels_of_a_clean_manifest_count(tmp_path: Path) -> None:
    noisy = trees.manifest(tmp_path)
    rows = pd.read_csv(noisy)
    verified = rows[rows["verified_label"].notna() & (rows["split"] == "train")].drop(columns=["true_label", "split"])
    verified.to_csv(tmp_path / "clean.csv", index=False)
    opened = open_data({"source": str(noisy), "clean": str(tmp_path / "clean.csv")})
    data = make_splits(opened.train, opened.clean)  # type: ignore[arg-type]
    assert data.pairs is not None
    given, right = data.pairs
    assert len(data.train) == 27 - len(given) == 15
    assert int((given != right).sum()) == 3, "number 3 of each class is labelled wrongly, and verified"
    rows.drop(columns=["split"]).to_csv(tmp_path / "clean.csv", index=False)
    with pytest.raises(ValueError, match=r"15 of 30 samples of the clean set .*clean.csv have no verified label"):
        open_data({"source": str(noisy), "clean": str(tmp_path / "clean.csv")})


def test_a_million_labels_are_numbered_in_a_moment() -> None:
    import time

    from mslg.data.labels import encode_labels

    names = np.array(["b", "a", "c"], dtype=object)[np.arange(1_000_000) % 3]
    begun = time.process_time()
    numbers, classes = encode_labels(names, None, "data")
    assert time.process_time() - begun < 3
    assert classes == ("a", "b", "c")
    assert torch.equal(numbers[:4], torch.tensor([1, 0, 2, 1]))


def test_the_verified_samples_of_a_table_are_its_clean_set(tmp_path: Path) -> None:
    rows = "".join(f"{place % 2},{place / 40},{place % 2},{place % 2 if place < 10 else ''}\n" for place in range(40))
    (tmp_path / "table.csv").write_text("label,x,y,verified_label\n" + rows)
    settings = Settings.of({"data": {"source": str(tmp_path / "table.csv")}})
    settings, data = open_run_data(settings)
    assert (settings.data.clean, data.clean) == (10, 10)
    plain = Settings.of({"data": {"source": str(tmp_path / "table.csv")}, "method": {"name": "cross-entropy"}})
    assert open_run_data(plain)[1].clean is None, "it needs none"

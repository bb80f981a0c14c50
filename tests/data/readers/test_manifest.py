"""Manifests: labels as numbers or names, known splits and labels, nothing read from outside their folder."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from mslg.data.image_stores import ImageStore
from mslg.data.make_splits import make_splits
from mslg.data.readers.manifest import manifest
from mslg.data.readers.options import Reading
from mslg.runs.open_data import open_data
from tests.support import trees

READING = Reading()


def write(root: Path, text: str, name: str = "data.csv") -> Path:
    for number in range(4):
        trees.picture(root / f"{number}.png", number % 2, number)
    (root / name).write_text(text)
    return root / name


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_every_column_has_its_place(ending: str, tmp_path: Path) -> None:
    found = manifest(trees.manifest(tmp_path, ending), reading=READING)
    train, test = found.train, found.test
    assert test is not None
    assert train.classes == ("ant", "bee", "cat")
    assert train.ids[:2] == ("images/ant,0.png", "images/ant,1.png"), "a comma in a name is part of the name"
    assert train.label.tolist()[:5] == [0, 0, 0, 1, 0]
    assert train.true_label is not None
    assert train.true_label.tolist()[:5] == [0] * 5
    assert train.verified_label is not None
    assert train.verified_label.tolist()[:5] == [-1, 0, -1, 0, -1]
    assert test.ids == ("images/ant,9.png", "images/bee,9.png", "images/cat,9.png")
    assert test.label.tolist() == [0, 1, 2]


def test_verified_labels_are_where_clean_samples_come_from(tmp_path: Path) -> None:
    opened = open_data({"source": str(trees.manifest(tmp_path)), "clean": 6})
    data = make_splits(opened.train, opened.clean)
    assert data.clean is not None
    assert torch.bincount(data.clean.label).tolist() == [2, 2, 2]
    assert all(int(opened.train.ids[i].split(",")[1].split(".")[0]) % 2 for i in data.clean.index)


def test_the_label_of_a_test_row_is_the_true_one(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "path,label,true_label,split\n0.png,a,a,train\n1.png,b,b,train\n2.png,a,b,test\n3.png,b,,test\n",
    )
    test = manifest(path, reading=READING).test
    assert test is not None
    assert test.label.tolist() == [1, 1]
    assert test.true_label is None


@pytest.mark.parametrize(
    ("labels", "classes", "numbers"),
    [
        (("0", "2", "1", "2"), ("0", "1", "2"), [0, 2, 1, 2]),
        (("007", "1", "007", "1"), ("007", "1"), [0, 1, 0, 1]),
        (("NA", "null", "NA", "None"), ("NA", "None", "null"), [0, 2, 0, 1]),
        (("1", "two", "1", "two"), ("1", "two"), [0, 1, 0, 1]),
    ],
)
def test_labels_are_numbers_or_names(
    labels: tuple[str, ...], classes: tuple[str, ...], numbers: list[int], tmp_path: Path
) -> None:
    rows = "\n".join(f"{number}.png,{label}" for number, label in enumerate(labels))
    train = manifest(write(tmp_path, f"path,label\n{rows}\n"), reading=READING).train
    assert train.classes == classes
    assert train.label.tolist() == numbers


def test_whole_numbers_in_parquet_are_class_numbers(tmp_path: Path) -> None:
    write(tmp_path, "")
    table = pd.DataFrame(
        {"path": [f"{i}.png" for i in range(4)], "label": [1, 0, 1, 0], "verified_label": [2, None, -1, 0]}
    )
    table.to_parquet(tmp_path / "data.parquet")
    train = manifest(tmp_path / "data.parquet", reading=READING).train
    assert train.classes == ("0", "1", "2")
    assert train.verified_label is not None
    assert train.verified_label.tolist() == [2, -1, -1, 0]


def test_numeric_columns_instead_of_a_path_are_features(tmp_path: Path) -> None:
    path = write(tmp_path, "id,width,height,label,split\na,1,2.5,x,train\nb,3,4,y,train\nc,5,6,x,test\n")
    found = manifest(path, reading=READING)
    (batch,) = found.train.store.batches([torch.tensor([1, 0])])
    assert batch.tolist() == [[3, 4], [1, 2.5]]
    assert found.train.ids == ("a", "b")
    assert found.test is not None
    assert found.test.ids == ("c",)


def test_a_hugging_face_imagefolder_is_a_manifest(tmp_path: Path) -> None:
    write(tmp_path, "file_name,label\n0.png,a\n1.png,b\n", "metadata.csv")
    assert open_data({"source": str(tmp_path)}).train.ids == ("0.png", "1.png")


WRONG = {
    "no label": ("path,lable\n0.png,a\n", "unknown column in data.csv 'lable'. Did you mean 'label'?"),
    "another label": ("path,klass\n0.png,a\n", "data.csv has no column 'label'; it has: path, klass"),
    "misspelled": ("path,label,verifed_label\n0.png,a,a\n", "Did you mean 'verified_label'?"),
    "no path": (
        "file,label\n0.png,a\n",
        "no column 'path' or 'text', so its other columns must be features, but the columns file are not numeric; ",
    ),
    "only labels": ("id,label\n0,a\n1,b\n", "but there are no others"),
    "empty": ("path,label\n", "data.csv has no rows"),
    "nothing at all": ("", "cannot be read as a table"),
    "label missing": ("path,label\n0.png,a\n1.png,\n", "data.csv has no label in row 2 (after the header)"),
    "path missing": ("path,label\n0.png,a\n,b\n", "data.csv has no path in row 2 (after the header)"),
    "negative": ("path,label\n0.png,-1\n1.png,1\n", "data.csv has the label -1 (1 such samples)"),
    "a code": ("path,label\n0.png,0\n1.png,1000000000\n", "has the label 1000000000; integer labels are class numbers"),
    "split": (
        "path,label,split\n0.png,a,train\n1.png,b,tets\n",
        "unknown split in data.csv 'tets'. Did you mean 'test'?",
    ),
    "only test": (
        "path,label,split\n0.png,a,test\n1.png,b,test\n",
        "data.csv has no training samples, only those of: test",
    ),
    "both": (
        "path,label,split\n0.png,a,train\n1.png,b,train\n1.png,b,test\n",
        "data.csv has 1 samples both in train and in test, such as '1.png'",
    ),
    "same id": ("path,label,id\n0.png,a,x\n1.png,b,x\n", "data.csv has the id 'x' more than once (1 repeated ids)"),
    "same path": ("path,label\n0.png,a\n0.png,b\n", "data.csv has the id '0.png' more than once"),
    "no such file": ("path,label\n0.png,a\n9.png,b\n", "9.png (there is no such file)"),
    "infinite": ("a,b,label\n1,2,x\n1,inf,y\n", "NaN or infinite values, first in column 'b', row 2"),
    "parent": ("path,label\n0.png,a\n../secret.png,b\n", "has the path '../secret.png' in row 2"),
    "parent inside": ("path,label\n0.png,a\nx/../../secret.png,b\n", "stay below its folder, without '..'"),
    "absolute": ("path,label\n0.png,a\n/etc/passwd,b\n", "has the path '/etc/passwd' in row 2"),
    "drive": ("path,label\n0.png,a\nC:\\secret.png,b\n", "paths must be relative to the manifest"),
    "home": ("path,label\n0.png,a\n~/secret.png,b\n", "paths must be relative to the manifest"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_named(name: str, tmp_path: Path) -> None:
    text, message = WRONG[name]
    with pytest.raises(ValueError) as caught:
        manifest(write(tmp_path, text), reading=READING)
    assert message in str(caught.value)


@pytest.mark.parametrize("corrupt", ["error", "skip"])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_that_leads_out_of_the_folder_is_refused(what: str, corrupt: str, tmp_path: Path) -> None:
    trees.picture(tmp_path / "outside" / "secret.png", 0)
    path = write(tmp_path / "inside", "path,label\n0.png,a\nlink/secret.png,b\n")
    if what == "folder":
        (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside", target_is_directory=True)
    else:
        (tmp_path / "inside" / "link").mkdir()
        (tmp_path / "inside" / "link" / "secret.png").symlink_to(tmp_path / "outside" / "secret.png")
    with pytest.raises(ValueError, match=r"secret.png leads out of the folder .* a manifest may only name files below"):
        manifest(path, reading=Reading(corrupt=corrupt))


def test_a_link_made_later_is_refused_when_it_is_read(tmp_path: Path) -> None:
    trees.picture(tmp_path / "secret.png", 0)
    write(tmp_path / "inside", "")
    store = ImageStore(["0.png", "1.png"], tmp_path / "inside", trees_frame(), confined=True)
    (tmp_path / "inside" / "1.png").unlink()
    (tmp_path / "inside" / "1.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(ValueError, match="leads out of the folder"):
        list(store.batches([torch.tensor([0, 1])]))


def trees_frame() -> object:
    from mslg.data.images import Frame

    return Frame(20, 20)


MILLION = """
import sys, time
from pathlib import Path
import mslg.runs.open_data as o
begun = time.perf_counter()
opened = o.open_data({"source": sys.argv[1]})
assert len(opened.train) == 1_000_000
print(time.perf_counter() - begun)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_million_rows_open_in_seconds(ending: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(50):
        trees.picture(tmp_path / "images" / f"{number}.png", number % 3, number)
    # A million names for fifty files: what is opened is the list.
    for number in range(1000):
        (tmp_path / f"d{number}").symlink_to(tmp_path / "images", target_is_directory=True)
    rows = np.arange(1_000_000)
    paths = [f"d{row % 1000}/./{row}.png" for row in rows.tolist()]
    for row in np.unique(np.linspace(0, len(rows) - 1, 1000).astype(np.int64)).tolist():
        paths[row] = f"d{row % 1000}/" + "./" * (row // 50_000) + f"{row % 50}.png"
    labels = np.array([f"class {i:03d}" for i in range(500)])[random.integers(0, 500, len(rows))]
    table = pd.DataFrame({"path": paths, "label": labels, "id": [f"id-{row}" for row in rows.tolist()]})
    table["verified_label"] = np.where(rows % 100 == 0, labels, None)
    target = tmp_path / f"data{ending}"
    table.to_csv(target, index=False) if ending == ".csv" else table.to_parquet(target, index=False)
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", MILLION, str(target)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    took, memory = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"{ending}: {float(done.stdout):.1f} s, {took:.1f} s with imports, {memory:.2f} GB")
    assert float(done.stdout) < 10
    assert memory < 2

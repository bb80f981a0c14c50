"""Labels and data for other programs: tables, Label Studio tasks, image folders."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import mslg
from tests.support.run_folders import run_folder

CLASSES = ("ant", "../x", 'q"<>&,\n', "CON")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run on files, in several row groups, with classes that are hard to write down."""
    folder = run_folder(tmp_path / "run", samples=12, classes=CLASSES)
    table = pq.read_table(folder / "labels.parquet")
    paths = []
    for place in range(len(table)):
        path = tmp_path / "data" / f"{place % 3}" / "image.png"  # several of one name
        path = path.with_name(f"{place}.png") if place % 2 else path.with_name("same.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), 20 * place).save(path)
        paths.append(str(path))
    pq.write_table(table.append_column("path", pa.array(paths)), folder / "labels.parquet", row_group_size=5)
    (folder / "model.safetensors").write_bytes(b"")  # labels are exported without a look at it
    return folder


def labels(run: Path) -> pd.DataFrame:
    return pd.read_parquet(run / "labels.parquet")


def test_a_table_is_the_same_in_pandas(run: Path, tmp_path: Path) -> None:
    found = pd.read_csv(mslg.export(run, to="csv", path=tmp_path / "labels.csv"), dtype={"id": str})
    wanted = labels(run).drop(columns="soft_label")
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False, rtol=1e-6)


def test_soft_labels_have_a_column_for_each_class(run: Path, tmp_path: Path) -> None:
    found = pd.read_csv(mslg.export(run, to="csv", path=tmp_path / "labels.csv", soft=True))
    columns = [f"p_{name}" for name in CLASSES]
    assert list(found.columns)[-4:] == columns
    np.testing.assert_allclose(found[columns], np.stack(labels(run)["soft_label"].to_list()), rtol=1e-6)


def test_a_table_opens_in_hugging_face_datasets(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    path = mslg.export(run, to="csv", path=tmp_path / "labels.csv", soft=True)
    found = datasets.load_dataset("csv", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert found["suggested_label"] == labels(run)["suggested_label"].tolist()
    assert found["is_label_issue"] == labels(run)["is_label_issue"].tolist()
    tree = mslg.export(run, to="imagefolder", path=tmp_path / "tree")
    (tree / ".mslg.json").unlink()
    images = datasets.load_dataset("imagefolder", data_dir=str(tree), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(images) == 12


def tasks_of(path: Path) -> list[dict[str, Any]]:
    """The tasks, each checked against the structure that Label Studio publishes for predictions to import."""
    view = ElementTree.fromstring(path.with_suffix(".xml").read_text())
    choices, image = view.find("Choices"), view.find("Image")
    assert choices is not None
    assert image is not None
    assert [choice.get("value") for choice in choices] == list(CLASSES)
    assert image.get("value") == "$image"
    tasks = json.loads(path.read_text())
    for task in tasks:
        assert set(task) <= {"data", "predictions", "annotations"}
        assert isinstance(task["data"]["image"], str)
        (prediction,) = task["predictions"]
        assert set(prediction) == {"model_version", "result", "score"}
        assert isinstance(prediction["model_version"], str)
        assert 0 <= prediction["score"] <= 1
        (result,) = prediction["result"]
        assert set(result) == {"from_name", "to_name", "type", "value"}
        assert (result["from_name"], result["to_name"]) == (choices.get("name"), image.get("name"))
        assert result["type"] == "choices"
        (choice,) = result["value"]["choices"]
        assert choice in CLASSES
    return tasks


def test_flagged_samples_are_tasks_with_the_suggested_label(run: Path, tmp_path: Path) -> None:
    found = tasks_of(mslg.export(run, to="label-studio", path=tmp_path / "tasks.json", document_root=tmp_path))
    flagged = labels(run).query("is_label_issue")
    assert [task["data"]["id"] for task in found] == flagged["id"].tolist()
    suggested = [task["predictions"][0]["result"][0]["value"]["choices"][0] for task in found]
    assert suggested == flagged["suggested_label"].tolist()
    scores = [task["predictions"][0]["score"] for task in found]
    assert scores == pytest.approx((1 - flagged["label_quality"]).tolist(), abs=1e-6)
    assert found[0]["data"]["image"] == "/data/local-files/?d=data/0/same.png"


def test_all_samples_and_decided_ones(run: Path, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("id,decision,label\ns000,keep,\ns001,remove,\n")
    found = tasks_of(
        mslg.export(run, to="label-studio", path=tmp_path / "tasks.json", all=True, decisions=tmp_path / "d.csv")
    )
    assert [task["data"]["id"] for task in found] == [f"s{place:03d}" for place in range(12) if place != 1]
    decided = [task for task in found if "annotations" in task]
    assert [task["data"]["id"] for task in decided] == ["s000"]
    assert decided[0]["annotations"][0]["result"][0]["value"]["choices"] == ["ant"]


@pytest.mark.parametrize(("link", "suggested"), [(False, True), (True, False)])
def test_an_image_folder(link: bool, suggested: bool, run: Path, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("id,decision,label\ns000,keep,\ns002,relabel,CON\ns003,remove,\n")
    out = tmp_path / "out" / "tree"
    before = {path for path in tmp_path.rglob("*") if out.parent not in path.parents}
    mslg.export(run, to="imagefolder", path=out, decisions=tmp_path / "d.csv", suggested=suggested, link=link)
    after = {path for path in tmp_path.rglob("*") if out.parent not in path.parents} - {out.parent}
    assert after == before, "nothing is written outside of the folder"
    names = json.loads((out / ".mslg.json").read_text())["classes"]
    table = (
        labels(run).set_index("id").assign(label=lambda rows: rows["suggested_label" if suggested else "given_label"])
    )
    table.loc["s000", "label"], table.loc["s002", "label"] = "ant", "CON"
    wanted = table.drop(index="s003").groupby("label")["path"].agg(list)
    for name, paths in wanted.items():
        found = sorted(path.read_bytes() for path in (out / names[str(name)]).iterdir())
        assert found == sorted(Path(path).read_bytes() for path in paths)
    one = next((out / "ant").iterdir())
    assert (one.stat().st_nlink > 1) is link

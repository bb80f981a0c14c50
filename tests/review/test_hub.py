"""The cleaned data set for the hub, read back by the hub's own library; or the labels alone, and why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

import mslg
from mslg.data.images import EscapingPath
from mslg.fitting.fit import fit_settings
from mslg.review.cleaned.samples import cleaned_samples
from mslg.review.hub import dataset as hub_dataset
from mslg.runs.folder import Run
from tests.support.blobs import blobs, small_network
from tests.support.fitted_blobs import fitted
from tests.support.text_tables import reviews
from tests.support.trees import image_folder

NETWORKS = {"texts.csv": "text-mlp"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Relative paths in a run start at the folder in which it was made."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "work"


def run_on(data: str, **settings: Any) -> Path:
    tables: dict[str, dict[str, Any]] = {
        "data": {"source": data, **settings},
        "method": {"name": "cross-entropy"},
        "train": {"epochs": 2, "batch_size": 8, "learning_rate": 0.02},
        "network": {"name": NETWORKS.get(data, "mlp")},
    }
    fit_settings(tables, output="run", progress=False, device="cpu")
    return Path("run")


def loaded(folder: Path, cache: Path) -> Any:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    return datasets.load_dataset(str(folder.absolute() / "dataset"), split="train", cache_dir=str(cache))


def card(folder: Path) -> str:
    return (folder / "dataset" / "README.md").read_text()


def flagged(run: Path) -> None:
    """Other suggestions and ranks than a short run has."""
    table = pq.read_table(run / "labels.parquet").to_pandas()
    names = sorted(set(table["given_label"]))
    table["suggested_label"] = [names[(names.index(name) + 1) % len(names)] for name in table["given_label"]]
    (run / "checksums.json").unlink(missing_ok=True)
    table.to_parquet(run / "labels.parquet", row_group_size=7)


def test_images_with_labels_as_apply_decides(tmp_path: Path) -> None:
    image_folder(Path("photos"))
    run = run_on("photos")
    flagged(run)
    ids = pd.read_parquet(run / "labels.parquet")["id"].tolist()
    Path("d.csv").write_text(f"id,decision,label\n{ids[0]},relabel,cat\n{ids[1]},remove,\n")
    for suggested in (False, True):
        folder = mslg.export(
            run, to="huggingface", path=f"hub{suggested}", decisions="d.csv", suggested=suggested, link=suggested
        )
        pieces, _ = cleaned_samples(Run.open(run), "d.csv", suggested=suggested)
        expected = {sample.id: sample for piece in pieces for sample in piece}
        table = pd.read_parquet(folder / "dataset" / "data" / "train" / "metadata.parquet")
        assert table["id"].tolist() == [name for name in ids if name != ids[1]] == list(expected)
        assert table["label"].tolist() == [sample.label for sample in expected.values()]
        assert table["label_source"].tolist() == [sample.label_source for sample in expected.values()]
        assert table["label"][0] == "cat"
        assert table["file_name"].is_unique
        assert "path" not in table
        files = [folder / "dataset" / "data" / "train" / name for name in table["file_name"]]
        assert [file.read_bytes() for file in files] == [(Path("photos") / name).read_bytes() for name in table["id"]]
        assert (files[0].stat().st_nlink > 1) == suggested
        assert "| `image` | the image" in card(folder)
        assert "The inputs are part of it" in card(folder)
    rows = loaded(folder, tmp_path / "cache")
    assert rows["label"] == table["label"].tolist()
    assert rows["id"] == table["id"].tolist()
    assert (np.asarray(rows[3]["image"]) == np.asarray(Image.open(Path("photos") / ids[4]))).all()
    assert len(rows[0]["soft_label"]) == 3
    assert "image" in rows.features


def test_files_are_dealt_out_to_folders_that_the_hub_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hub_dataset, "IN_A_FOLDER", 10)
    image_folder(Path("photos"))
    folder = mslg.export(run_on("photos"), to="huggingface", path="hub")
    counts = [len(list(each.iterdir())) for each in sorted((folder / "dataset" / "data" / "train").glob("0*"))]
    assert counts == [10, 10, 4]
    assert len(loaded(folder, tmp_path / "cache")) == 24


def test_paths_in_a_runs_folder_are_followed_to_the_data_only(tmp_path: Path, here: Path) -> None:
    image_folder(tmp_path / "elsewhere" / "photos")
    run = run_on(str(tmp_path / "elsewhere" / "photos"))
    with pytest.raises(EscapingPath, match=r"name their folder: --data .*elsewhere"):
        mslg.export(run, to="huggingface", path="hub")
    assert not Path("hub").exists()
    mslg.export(run, to="huggingface", path="hub", data=tmp_path / "elsewhere")
    table = pq.read_table(run / "labels.parquet").to_pandas()
    secret = here / "secret.txt"
    secret.write_text("secret")
    table.loc[3, "path"] = str(secret)
    table.to_parquet(run / "labels.parquet")
    (run / "checksums.json").unlink(missing_ok=True)
    with pytest.raises(ValueError, match=r"secret\.txt is not an image file"):
        mslg.export(run, to="huggingface", path="other", data=tmp_path / "elsewhere")


def test_the_folder_that_is_replaced_does_not_hold_the_data() -> None:
    image_folder(Path("hub/model"))
    np.savez("hub/model/rows.npz", X=np.eye(20, dtype=np.float32), y=np.arange(20) % 2)
    for data in ("hub/model/rows.npz", "hub/model"):
        run = run_on(data)
        with pytest.raises(ValueError, match="which would be replaced; choose another folder"):
            mslg.export(run, to="huggingface", path="hub", force=True)
        assert Path(data).exists()
        shutil.rmtree(run)


def test_files_that_are_gone_leave_the_labels(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    image_folder(Path("photos"))
    run = run_on("photos")
    ids = pd.read_parquet(run / "labels.parquet")["id"].tolist()
    (Path("photos") / ids[5]).unlink()
    with caplog.at_level("WARNING", "mslg"):
        folder = mslg.export(run, to="huggingface", path="hub")
    assert f"1 of 24 files were missing (such as photos/{ids[5]}; relative paths start" in caplog.text
    assert "The inputs are not part of it, because 1 of 24 files were missing: `id` is the key" in card(folder)
    assert not (folder / "dataset" / "data" / "train").exists()
    rows = loaded(folder, tmp_path / "cache")
    assert rows["id"] == ids
    assert not {"file_name", "path", "image"} & set(rows.column_names)


def test_texts(tmp_path: Path) -> None:
    reviews().drop(columns="true_label").to_csv("texts.csv", index=False)
    folder = mslg.export(run_on("texts.csv", clean=None), to="huggingface", path="hub")
    rows = loaded(folder, tmp_path / "cache")
    assert rows["text"] == reviews()["text"].tolist()
    assert rows["label"] == reviews()["label"].tolist()
    assert "| `text` | the text |" in card(folder)


def test_a_table_whose_features_are_called_as_our_columns(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame({"height": random.normal(size=40), "rank": random.normal(size=40), "label": ["a", "b"] * 20})
    table.to_csv("table.csv", index=False)
    folder = mslg.export(run_on("table.csv", noise="uniform", rate=0.3), to="huggingface", path="hub")
    rows = loaded(folder, tmp_path / "cache").to_pandas()
    assert np.allclose(rows[["height", "feature_rank"]], table[["height", "rank"]])
    assert rows["rank"].sort_values().tolist() == list(range(40))
    assert 0 < (rows["label"] != table["label"]).sum() < 20, "given labels are those with the noise"
    assert "| `feature_rank` | a feature |" in card(folder)


def test_verified_samples_are_in_it_with_their_inputs(tmp_path: Path) -> None:
    x, label = np.random.default_rng(0).normal(size=(60, 2, 3)).astype(np.float32), np.arange(60) % 2
    np.savez("rows.npz", X=x, y=label, verified=np.where(np.arange(60) < 30, 1 - label, -1))
    folder = mslg.export(run_on("rows.npz", clean=20), to="huggingface", path="hub")
    rows = loaded(folder, tmp_path / "cache").with_format("numpy")
    order = np.array([int(name) for name in rows["id"]])
    assert sorted(order) == list(range(60))
    assert (np.stack(list(rows["features"])) == x[order]).all()
    verified = np.array(rows["label_source"]) == "verified"
    assert verified.sum() == 20
    assert (np.array(rows["label"]).astype(int) == np.where(verified, 1 - label[order], label[order])).all()


def test_arrays_of_python_are_taken_from_the_result_or_passed_again(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    data = blobs()
    run = fitted(Path("run"), method="cross-entropy", epochs=1)
    for source, more in ((run, {}), ("run", {"noisy": (data.x, data.given)})):
        folder = mslg.export(source, to="huggingface", path="hub", force=True, **more)
        table = pd.read_parquet(folder / "dataset" / "data")
        assert (np.stack(table["features"].to_list()) == data.x.astype(np.float32)).all()
    with pytest.raises(ValueError, match="not those that run was trained on"):
        mslg.export("run", to="huggingface", path="hub", force=True, noisy=(data.x + 1, data.given))
    with caplog.at_level("WARNING", "mslg"):
        mslg.export("run", to="huggingface", path="hub", force=True)
    assert "started in Python with data in memory (pass it again: mslg.export(run" in caplog.text
    assert "because the run was started in Python with data in memory: `id`" in card(folder)
    assert "features" not in loaded(folder, tmp_path / "cache").column_names


def test_a_dataset_object_leaves_the_labels(caplog: pytest.LogCaptureFixture) -> None:
    data = blobs()
    items = TensorDataset(torch.as_tensor(data.x), torch.as_tensor(data.given))
    run = mslg.fit(small_network, items, method="cross-entropy", epochs=1, progress=False, output="run")
    folder = mslg.export(run, to="huggingface", path="hub")
    assert "because the samples were read from a Dataset object" in card(folder)
    assert "read from a Dataset object" in caplog.text
    assert pd.read_parquet(folder / "dataset" / "data")["id"].tolist() == run.labels["id"].tolist()


def test_data_that_was_moved_or_changed_leaves_the_labels(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    np.savez("rows.npz", X=np.eye(20, dtype=np.float32), y=np.arange(20) % 2)
    run = run_on("rows.npz")
    np.savez("rows.npz", X=2 * np.eye(20, dtype=np.float32), y=np.arange(20) % 2)
    folder = mslg.export(run, to="huggingface", path="hub")
    assert "because the data is no longer as it was in training" in card(folder)
    Path("rows.npz").unlink()
    folder = mslg.export(run, to="huggingface", path="hub", force=True)
    assert "because the data was no longer where it was in training" in card(folder)
    assert "rows.npz" in caplog.text
    assert "rows.npz" not in card(folder)


def test_a_table_that_a_runs_folder_names_is_not_read_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    np.savez(tmp_path / "elsewhere" / "rows.npz", X=np.eye(20, dtype=np.float32), y=np.arange(20) % 2)
    run = run_on(str(tmp_path / "elsewhere" / "rows.npz"))
    with pytest.raises(EscapingPath, match=r"name their folder: --data .*elsewhere"):
        mslg.export(run, to="huggingface", path="hub")
    folder = mslg.export(run, to="huggingface", path="hub", data=tmp_path / "elsewhere")
    assert "features" in pd.read_parquet(folder / "dataset" / "data")

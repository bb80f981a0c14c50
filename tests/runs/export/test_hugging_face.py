"""A folder for the hub: it loads with the hub's own libraries, and nothing is uploaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mslg
from mslg.runs.export.hugging_face import task_of
from mslg.runs.folder import Run
from tests.support.blobs import blobs, small_network
from tests.support.fitted_blobs import fitted


def test_model_and_labels_with_cards_that_the_hub_reads(tmp_path: Path) -> None:
    run = fitted(tmp_path / "run", method="cross-entropy", epochs=2)
    folder = mslg.export(run, to="huggingface", path=tmp_path / "hub")
    model = mslg.load_model(folder / "model", small_network)
    assert model.classes == run.classes
    config = json.loads((folder / "model" / "config.json").read_text())
    assert config["id2label"] == {str(number): name for number, name in enumerate(run.classes)}
    assert config["num_labels"] == 4
    labels = pd.read_parquet(folder / "dataset" / "data")
    assert labels["id"].tolist() == run.labels["id"].tolist()
    assert labels["label"].tolist() == run.labels["given_label"].tolist()
    assert labels["suggested_label"].tolist() == run.labels["suggested_label"].tolist()
    assert np.allclose(np.stack(labels["soft_label"].to_list()), run.soft_labels)
    assert "path" not in labels
    with pytest.raises(FileExistsError, match="is not empty; choose another folder, or replace it with --force"):
        mslg.export(run, to="huggingface", path=folder)
    mslg.export(run, to="huggingface", path=folder, force=True)
    (folder / "mine.txt").write_text("keep me")
    with pytest.raises(FileExistsError, match=r"other files, such as mine\.txt, and will not be deleted"):
        mslg.export(run, to="huggingface", path=folder, force=True)


@pytest.mark.parametrize(
    ("inputs", "task"),
    [
        ({"input_ids": {}, "attention_mask": {}}, "text-classification"),
        ({"pixel_values": {}}, "image-classification"),
        ({"shape": [3, 8, 8], "dtype": "float32"}, "image-classification"),
        ({"shape": [5], "dtype": "float32"}, "tabular-classification"),
        ([{"shape": [5]}, {"shape": [2]}], "other"),
    ],
)
def test_the_hubs_name_for_the_task(inputs: Any, task: str, tmp_path: Path) -> None:
    assert task_of(Run(tmp_path), {"inputs": inputs}) == task


def test_the_hubs_library_reads_the_cards(tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    data = blobs()
    run = fitted(tmp_path / "run", method="cross-entropy", epochs=2, test=(data.test_x, data.test_y))
    folder = mslg.export(run, to="huggingface", path=tmp_path / "hub")
    card = hub.ModelCard.load(folder / "model" / "README.md")
    assert card.data.library_name == "mslg"
    assert card.data.pipeline_tag == "tabular-classification"
    (result,) = card.data.eval_results
    assert result.metric_value == pytest.approx(run.summary["last"]["test/accuracy"], abs=1e-4)
    data_card = hub.DatasetCard.load(folder / "dataset" / "README.md")
    assert data_card.data.size_categories == ["n<1K"]

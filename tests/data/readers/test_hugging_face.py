"""Data sets of the Hugging Face library, where it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from mslg.data.open import open_named
from mslg.fitting.fit import fit_settings
from mslg.runs.open_data import open_data
from mslg.runs.recipes import merged
from tests.support import trees

MISSING = importlib.util.find_spec("datasets") is None


@pytest.mark.skipif(not MISSING, reason="the datasets library is installed")
def test_without_the_library_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ImportError, match="the datasets library is not installed; install it with: pip install datasets"
    ):
        open_named(f"hf:{tmp_path}")


@pytest.mark.skipif(MISSING, reason="the datasets library is not installed")
def test_an_imagefolder_and_what_was_saved_from_it(tmp_path: Path) -> None:
    import datasets

    trees.image_folder(tmp_path / "images" / "train")
    trees.image_folder(tmp_path / "images" / "test", each=2, start=50)
    direct = open_named(f"hf:{tmp_path / 'images'}")
    loaded = datasets.load_dataset("imagefolder", data_dir=str(tmp_path / "images"))
    loaded.save_to_disk(str(tmp_path / "saved"))
    saved = open_named(f"hf:{tmp_path / 'saved'}")
    for found in (direct, saved):
        assert found.train.classes == ("ant", "bee", "cat")
        assert (len(found.train), len(found.test or ())) == (24, 6)
        (batch,) = found.train.store.batches([torch.arange(4)])
        assert batch.shape == (4, 3, 20, 20)
    settings = merged(
        {
            "data": {"source": f"hf:{tmp_path / 'saved'}"},
            "network": {"width": 4},
            "method": {"name": "cross-entropy"},
            "train": {"epochs": 2, "batch_size": 16},
        }
    )
    assert "test/accuracy" in fit_settings(settings, output=tmp_path / "run", progress=False).summary["last"]


@pytest.mark.skipif(MISSING, reason="the datasets library is not installed")
def test_columns_of_numbers_are_features(tmp_path: Path) -> None:
    import datasets

    rows = {"a": [1.0, 2.0, 3.0], "b": [1, 2, 3], "label": ["x", "y", "x"], "id": ["p", "q", "r"]}
    datasets.Dataset.from_dict(rows).save_to_disk(str(tmp_path / "d"))
    train = open_data({"source": f"hf:{tmp_path / 'd'}"}).train
    assert train.ids == ("p", "q", "r")
    (batch,) = train.store.batches([torch.tensor([2])])
    assert batch.tolist() == [[3, 3]]

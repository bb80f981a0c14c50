"""What holds for every data set in the list, and for every kind of file: on small copies made to the exact layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from mslg.data.readers import DATASETS
from mslg.data.readers.bundle import Bundle
from mslg.data.source import leaves
from mslg.fitting.fit import fit_settings
from mslg.runs.open_data import open_data, open_named
from mslg.runs.recipes import merged
from tests.support import trees

FILES: dict[str, Callable[[Path], Path]] = {
    "image folder": trees.image_folder,
    "CSV": trees.manifest,
    "Parquet": lambda root: trees.manifest(root, ".parquet"),
    "npz": trees.npz,
}
KINDS = [*DATASETS, *FILES]


def settings_of(kind: str, root: Path) -> dict[str, Any]:
    if kind in FILES:
        return {"source": str(FILES[kind](root / "data"))}
    return {"source": kind, "root": str(trees.NAMED[kind](root / "data"))} if kind in trees.NAMED else {"source": kind}


def opened(kind: str, root: Path) -> Bundle:
    settings = settings_of(kind, root)
    return open_named(settings["source"], root=settings.get("root"))


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_unique_and_stable_and_labels_are_in_range(kind: str, tmp_path: Path) -> None:
    first = opened(kind, tmp_path / "a")
    second = opened(kind, tmp_path / "b")
    for one, other in ((first.train, second.train), (first.test, second.test)):
        if one is None or other is None:
            assert kind == "image folder"
            continue
        assert len(set(one.ids)) == len(one) > 0
        assert one.ids == other.ids
        assert torch.equal(one.label, other.label)
        assert one.fingerprint() == other.fingerprint()
        assert one.label.dtype == torch.int64
        assert int(one.label.min()) >= 0
        assert int(one.label.max()) < len(one.classes)
        assert one.classes == first.train.classes
        assert len(one.store) == len(one)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_floats_of_one_shape(kind: str, tmp_path: Path) -> None:
    bundle = opened(kind, tmp_path)
    groups = [torch.tensor([0, 2, 1]), torch.tensor([3]), torch.tensor([2, 0])]
    batches = [leaves(inputs)[0] for inputs in bundle.train.store.batches(groups)]
    assert [len(batch) for batch in batches] == [3, 1, 2]
    assert all(batch.dtype == torch.float32 for batch in batches)
    assert torch.equal(batches[0][1], batches[2][0]), "the order asked for is the order given"
    if batches[0].dim() == 4:
        assert 0 <= float(batches[0].min()) <= float(batches[0].max()) <= 1
    if bundle.test is not None:
        (other,) = bundle.test.store.batches([torch.tensor([0])])
        assert other.shape[1:] == batches[0].shape[1:]


@pytest.mark.parametrize("kind", KINDS)
def test_no_test_sample_is_trained_on(kind: str, tmp_path: Path) -> None:
    bundle = opened(kind, tmp_path)
    if bundle.test is not None and kind != "npz":
        assert not set(bundle.test.ids) & set(bundle.train.ids)


@pytest.mark.parametrize("kind", KINDS)
def test_fit_goes_from_files_to_labels(kind: str, tmp_path: Path) -> None:
    narrow = {"hidden": [8]} if kind in ("digits", "cifar10-features") else {"width": 4}
    settings = merged(
        {
            "data": settings_of(kind, tmp_path),
            "network": narrow,
            "method": {"name": "cross-entropy"},
            "train": {"epochs": 2, "batch_size": 16},
        }
    )
    result = fit_settings(settings, workers=0, output=tmp_path / "run", progress=False)
    labels = pd.read_parquet(tmp_path / "run" / "labels.parquet")
    assert len(labels) == len(result.labels)
    assert set(labels["id"]) <= set(open_data(settings["data"]).train.ids)
    assert ("test/accuracy" in result.summary["last"]) == (kind != "image folder")

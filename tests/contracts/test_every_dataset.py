"""What holds for every data set in the list, and for every kind of file: on small copies made to the exact layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from mslg.data.open import open_named
from mslg.data.readers import DATASETS
from mslg.data.readers.bundle import Bundle
from mslg.data.source import make_source
from mslg.data.stores import TensorStore
from mslg.fitting.fit import fit_settings
from mslg.runs.open_data import open_data
from mslg.runs.recipes import merged
from mslg.testing import DATASET_CHECKS, check_dataset
from tests.support import trees

FILES: dict[str, Callable[[Path], Path]] = {
    "image folder": trees.image_folder,
    "CSV": trees.manifest,
    "Parquet": lambda root: trees.manifest(root, ".parquet"),
    "npz": trees.npz,
}
KINDS = [*DATASETS.built_in, *FILES]


def settings_of(kind: str, root: Path) -> dict[str, Any]:
    if kind in FILES:
        return {"source": str(FILES[kind](root / "data"))}
    return {"source": kind, "root": str(trees.NAMED[kind](root / "data"))} if kind in trees.NAMED else {"source": kind}


@pytest.mark.parametrize("check", DATASET_CHECKS)
@pytest.mark.parametrize("kind", KINDS)
def test_contract(kind: str, check: Callable[[Callable[[], Bundle]], None], tmp_path: Path) -> None:
    places = count()

    def reader() -> Bundle:
        settings = settings_of(kind, tmp_path / str(next(places)))  # another folder each time: ids must not tell
        return open_named(settings["source"], root=settings.get("root"))

    check(reader)


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


def bundle(**changes: Any) -> Bundle:
    images, label = torch.linspace(0, 1, 12 * 16).view(12, 1, 4, 4), torch.arange(12) % 3
    train = make_source(images, label, ids=[f"a{n}" for n in range(12)])
    test = make_source(images[:3], label[:3], ids=[f"b{n}" for n in range(3)])
    return Bundle(replace(train, **changes), test)


@pytest.mark.parametrize(
    ("reader", "contract"),
    [
        (lambda: bundle().train, "a data set must return a Bundle, not a Source"),
        (lambda: bundle(ids=("a",) * 12), "the ids of the train samples must be unique"),
        (lambda: bundle(label=torch.full((12,), 3)), "the train labels must be from 0 to 2"),
        (lambda: bundle(ids=tuple(f"b{n}" for n in range(12))), "3 samples are both in train and in test"),
        (lambda: bundle(store=TensorStore(torch.rand(12, 1, 4, 4))), "the train inputs must be the same each time"),
        (lambda: bundle(store=TensorStore(5 * torch.ones(12, 1, 4, 4))), "images must be between 0 and 1"),
    ],
)
def test_a_broken_contract_is_stated(reader: Callable[[], Bundle], contract: str) -> None:
    with pytest.raises(AssertionError, match=contract):
        check_dataset(reader)

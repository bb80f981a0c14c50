"""What a run keeps of the samples whose labels it trusts least."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import mslg
from mslg.data.source import make_source
from mslg.issues import suspects as module
from mslg.review.report import write_report
from mslg.review.report.cards import read_cards
from tests.support.blobs import blobs, small_network


def fitted(path: Path, **options: object) -> tuple[mslg.Result, pd.DataFrame, pd.DataFrame]:
    data = blobs()
    given = {"noisy": (data.x, data.given), "clean": (data.clean_x, data.clean_y), **options}
    noisy, clean = given.pop("noisy"), given.pop("clean")
    settings = {"network": small_network, "epochs": 4, "output": path, "progress": False, **given}
    network = settings.pop("network")
    result = mslg.fit(network, noisy, clean, **settings)  # type: ignore[arg-type]
    return result, *(pq.read_table(path / f"{name}.parquet").to_pandas() for name in ("suspects", "clean_samples"))


def test_suspects_are_the_worst_labels_with_all_there_is_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 50)
    result, suspects, clean = fitted(tmp_path / "run")
    worst = result.labels.sort_values("rank").head(50)
    for column in ("id", "rank", "given_label", "suggested_label", "predicted_label", "label_quality"):
        assert suspects[column].tolist() == worst[column].tolist(), column
    data = blobs()
    for _, row in suspects.iterrows():
        assert row["view_kind"] == "values"
        assert json.loads(row["view"])["values"] == pytest.approx(data.x[int(row["id"])], rel=1e-3)
        assert row["history_epochs"].tolist() == [0, 1, 2, 3]
        assert len(row["history_given"]) == len(row["history_predicted"]) == 4
        assert np.all((row["history_given"] >= 0) & (row["history_given"] <= 1))
        assert set(row["nearest"]) <= set(clean["id"])
    assert set(clean["id"]) >= {name for row in suspects["nearest"] for name in row}
    assert all(clean["verified_label"] == [str(data.clean_y[int(name)]) for name in clean["id"]])
    assert pq.read_schema(tmp_path / "run" / "suspects.parquet").metadata[b"format_version"] == b"1"


def test_the_nearest_clean_samples_have_the_features_with_the_smallest_angle(tmp_path: Path) -> None:
    result, suspects, _ = fitted(tmp_path / "run")
    data = blobs()
    network = result.model.eval()
    assert isinstance(network, nn.Sequential)
    with torch.no_grad():
        rows, others = (network[:-1](torch.tensor(x)).numpy() for x in (data.x, data.clean_x))
    for _, row in suspects.head(20).iterrows():
        feature = rows[int(row["id"])]
        angles = [feature @ other / (np.linalg.norm(feature) * np.linalg.norm(other) + 1e-12) for other in others]
        found = [angles[int(name)] for name in row["nearest"]]
        assert found == pytest.approx(sorted(angles, reverse=True)[:4], abs=1e-5)


def test_clean_samples_out_of_the_noisy_data_keep_their_ids(tmp_path: Path) -> None:
    data = blobs()
    names = [f"name-{place}" for place in range(len(data.x))]
    noisy = make_source(data.x, data.given, ids=names, verified_labels=data.true)
    _, suspects, clean = fitted(tmp_path / "run", noisy=noisy, clean=24)
    assert set(clean["id"]) <= set(names)
    assert not set(clean["id"]) & set(suspects["id"])
    assert clean["verified_label"].tolist() == [str(data.true[names.index(name)]) for name in clean["id"]]


def test_a_clean_and_a_reviewed_sample_of_one_position_are_two(tmp_path: Path) -> None:
    data = blobs()
    decisions = tmp_path / "decisions.csv"
    decisions.write_text("id,decision,label\n" + "".join(f"{p},relabel,{data.true[p]}\n" for p in range(40)))
    _, suspects, clean = fitted(tmp_path / "run", decisions=decisions)
    assert clean["id"].is_unique
    assert {name for row in suspects["nearest"] for name in row} == set(clean["id"])
    both = [name.removesuffix(" (2)") for name in clean["id"] if name.endswith(" (2)")]
    assert both, "some have the same position"
    for name in both:
        rows = clean.set_index("id")
        for called, inputs in ((name, data.clean_x), (f"{name} (2)", data.x)):
            assert json.loads(rows.loc[called, "view"])["values"] == pytest.approx(inputs[int(name)], rel=1e-3)


def test_samples_that_stand_in_for_a_clean_set_are_not_shown_as_verified(tmp_path: Path) -> None:
    result, suspects, clean = fitted(tmp_path / "run", clean="auto", epochs=6)
    assert result.method.excluded() is not None, "some do stand in for it"
    assert len(suspects)
    assert all(len(names) == 0 for names in suspects["nearest"])
    assert not len(clean)
    assert list(clean.columns) == module.CLEAN.names
    cards = read_cards(tmp_path / "run", list(result.classes), most=5).payload()
    assert [card["nearest"] for card in cards["cards"]] == [[]] * 5
    assert cards["clean"] == []
    assert write_report(tmp_path / "run").exists()


def test_a_network_without_a_head_to_look_at_only_lacks_the_neighbours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Bilinear(nn.Module):
        """Logits without a Linear layer."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 4) * 0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    _, suspects, clean = fitted(tmp_path / "run", network=Bilinear, method="cross-entropy")
    assert all(len(names) == 0 for names in suspects["nearest"])
    assert not len(clean)
    assert "the clean samples most similar to each suspect were not found: Bilinear has no Linear layer" in caplog.text
    assert (tmp_path / "run" / "done").exists()

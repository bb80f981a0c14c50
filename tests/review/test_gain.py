"""What a review is worth: the gain foretold is what a training step does to the clean loss."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mslg
from mslg.data.make_splits import make_splits
from mslg.data.source import make_source
from mslg.fitting.review_next import review_next
from mslg.review.gain import choose_reviews, class_probabilities, expected_gain, pick_diverse, predict_with_tangents
from mslg.review.report.report_data import read_report_data
from mslg.review.serve import server_of
from tests.support.blobs import blobs, small_network

DATA = blobs(samples=240, clean=200)
NOISY = make_source(DATA.x, DATA.given, ids=[f"n{number}" for number in range(240)])
CLEAN = make_source(DATA.clean_x, DATA.clean_y, ids=[f"c{number}" for number in range(200)])
FAST: dict[str, Any] = {"epochs": 6, "batch_size": 32, "progress": False}


def test_the_gain_is_what_a_small_step_does_to_the_clean_loss() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    data = make_splits(
        make_source(torch.tensor(DATA.x).double().numpy(), DATA.given),
        make_source(torch.tensor(DATA.clean_x).double().numpy(), DATA.clean_y),
        batch_size=7,
    )
    assert data.select is not None
    some = data.train.at(torch.arange(6))
    # The store hands out floats; the network is in double precision.
    wrapped = nn.Sequential(ToDouble(), network)
    _, moved = predict_with_tangents(wrapped, data, some, data.select)
    in_use = torch.rand(6, 4, dtype=torch.float64).softmax(1)
    (clean,) = data.select.batches([torch.arange(len(data.select))])
    (batch,) = some.batches([torch.arange(6)])

    def clean_loss_after(sample: int, target: torch.Tensor, step: float = 1e-5) -> float:
        other = copy.deepcopy(wrapped)
        loss = -(target * other(batch.inputs[sample : sample + 1]).log_softmax(1)[0]).sum()
        gradient = torch.autograd.grad(loss, list(other.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(other.parameters(), gradient, strict=True):
                parameter -= step * slope
            return float(F.cross_entropy(other(clean.inputs), clean.label)) / step

    for sample in range(6):
        for label in range(4):
            target = F.one_hot(torch.tensor(label), 4).double()
            fall = clean_loss_after(sample, in_use[sample]) - clean_loss_after(sample, target)
            only_this = expected_gain(moved[sample : sample + 1], in_use[sample : sample + 1], target.unsqueeze(0))
            assert float(only_this) == pytest.approx(max(0.0, fall), abs=2e-4)


class ToDouble(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.double()


def test_the_expectation_is_over_the_posterior() -> None:
    random = np.random.default_rng(0)
    moved = torch.tensor(random.normal(size=(5, 3)))
    in_use, true = (torch.tensor(random.dirichlet(np.ones(3), 5)) for _ in range(2))
    found = expected_gain(moved, in_use, true)
    for sample in range(5):
        total = 0.0
        for label in range(3):
            fall = sum(float(in_use[sample, c] * moved[sample, c]) for c in range(3)) - float(moved[sample, label])
            total += float(true[sample, label]) * max(0.0, fall)
        assert float(found[sample]) == pytest.approx(total)


def test_the_posterior_gives_the_given_label_its_quality() -> None:
    probs = torch.tensor([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]], dtype=torch.float64)
    found = class_probabilities(probs, torch.tensor([1, 0]), torch.tensor([0.1, 1.0], dtype=torch.float64))
    assert torch.allclose(found[0], torch.tensor([0.36, 0.1, 0.54], dtype=torch.float64))
    assert torch.equal(found[1], torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))


def test_one_kind_of_mistake_does_not_fill_the_list() -> None:
    gain = [1.0, 0.99, 0.98, 0.97, 0.6, 0.1]
    kinds = ["a", "a", "a", "a", "b", "c"]
    assert pick_diverse(gain, kinds, 4) == [0, 1, 4, 2]
    assert pick_diverse(gain, list("abcdef"), 3) == [0, 1, 2]
    assert sorted(pick_diverse(gain, kinds, 100)) == [0, 1, 2, 3, 4, 5]
    assert pick_diverse([], [], 5) == []


def test_a_result_names_the_samples_to_review_next(tmp_path: Path) -> None:
    result = mslg.fit(small_network, NOISY, CLEAN, output=tmp_path / "run", **FAST)
    rows = result.review_next(20)
    assert list(rows.columns) == ["id", "rank", "given_label", "suggested_label", "gain"]
    assert rows["rank"].tolist() == result.labels.set_index("id")["rank"][rows["id"]].tolist()
    assert rows["gain"].mean() > 1  # that of a sample drawn at random
    assert rows["id"].is_unique
    assert (rows["gain"] > 0).all()
    doubtful = result.labels.set_index("id")["label_quality"]
    assert doubtful[rows["id"]].clip(upper=0.5).mean() < 0.5
    again = mslg.review_next(tmp_path / "run", small_network, NOISY, CLEAN, count=20)
    assert again["id"].tolist() == rows["id"].tolist()
    assert np.allclose(again["gain"], rows["gain"], rtol=1e-4)
    assert mslg.review_next(result, count=3)["id"].tolist() == result.review_next(3)["id"].tolist()


def test_what_cannot_be_opened_again_is_named(tmp_path: Path) -> None:
    mslg.fit(small_network, NOISY, CLEAN, output=tmp_path / "run", **FAST)
    with pytest.raises(ValueError, match=r"was started in Python, .* mslg.review_next\(run, network, noisy, clean\)"):
        review_next(tmp_path / "run")
    other = make_source(DATA.x, DATA.true, ids=NOISY.ids)
    with pytest.raises(ValueError, match="the data or its given labels are not those"):
        review_next(tmp_path / "run", small_network, other, CLEAN)
    with pytest.raises(ValueError, match="the splits are not those of"):
        review_next(
            tmp_path / "run",
            small_network,
            NOISY,
            make_source(DATA.clean_x[:50], DATA.clean_y[:50], ids=NOISY.ids[:50]),
        )
    with pytest.raises(ValueError, match="its weights do not fit a Linear"):
        review_next(tmp_path / "run", lambda: nn.Linear(2, 4), NOISY, CLEAN)
    (tmp_path / "run" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"is missing .* mslg fit -o .* --resume"):
        review_next(tmp_path / "run", small_network, NOISY, CLEAN)


def test_without_clean_samples_there_is_nothing_to_measure_on() -> None:
    result = mslg.fit(small_network, NOISY, None, method="cross-entropy", **FAST)
    with pytest.raises(ValueError, match="measured on clean samples and the run had none"):
        result.review_next()
    fitted = mslg.fit(small_network, NOISY, CLEAN, **FAST)
    with pytest.raises(ValueError, match="0 samples were asked for"):
        fitted.review_next(0)


def test_batch_norm_statistics_are_left_alone() -> None:
    network = small_network()
    data = make_splits(NOISY, CLEAN, batch_size=32)
    before = copy.deepcopy(network.state_dict())
    labels = mslg.fit(small_network, NOISY, CLEAN, **FAST).labels
    choose_reviews(network, data, labels, count=5)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.training


def test_the_samples_to_review_next_are_a_tab_of_the_page(tmp_path: Path) -> None:
    result = mslg.fit(small_network, NOISY, CLEAN, output=tmp_path / "run", **FAST)
    rows = mslg.review_next(tmp_path / "run", small_network, NOISY, CLEAN, count=5, page=True)
    kept = pq.read_table(tmp_path / "run" / "next.parquet")
    assert kept["id"].to_pylist() == rows["id"].tolist()
    assert all(kept["view"].to_pylist())
    cards = read_report_data(tmp_path / "run", cards=3).cards
    assert [card["id"] for card in cards.payload()["next"]] == rows["id"].tolist()
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert 'id="to-next" href="#worth">Review next <span class="pill">5</span>' in page
    server = server_of(tmp_path / "run")
    server.close()
    assert set(rows["id"]) <= set(server.labels)
    with pytest.raises(ValueError, match="pass the run's folder"):
        mslg.review_next(result, count=3, page=True)

"""Reviewed samples leave the training set and join the clean samples that steer, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from mslg.data.concat import ConcatStore, concat_sources
from mslg.data.dataset_store import DatasetStore
from mslg.data.make_splits import make_splits
from mslg.data.source import Source, make_source
from mslg.data.splits import Splits
from mslg.data.stores import TensorStore
from mslg.review.decisions import Decision
from mslg.review.reviewed_samples import with_reviewed
from tests.support.blobs import blobs

DATA = blobs(clean=200)
NOISY = make_source(DATA.x, DATA.given, ids=[f"n{number}" for number in range(240)], verified_labels=DATA.true)


CLEAN_IDS = [f"c{number}" for number in range(200)]


def decided(positions: list[int], kind: str = "relabel") -> dict[str, Decision]:
    labels = {position: str(int(DATA.true[position])) for position in positions}
    return {f"n{p}": Decision(f"n{p}", kind, label if kind == "relabel" else "") for p, label in labels.items()}


def separate(ids: list[str] | None = None) -> Splits:
    clean = make_source(DATA.clean_x, DATA.clean_y, ids=ids or CLEAN_IDS)
    return make_splits(NOISY, clean, seed=3)


def test_they_join_the_steering_part_with_their_verified_labels() -> None:
    before = separate()
    after = with_reviewed(before, {**decided([5, 3, 9]), **decided([7], "remove"), **decided([8], "skip")})
    assert len(after.train) == 240 - 4
    assert not set(after.train.index.tolist()) & {3, 5, 7, 9}
    assert 8 in after.train.index
    assert after.clean is not None
    assert before.clean is not None
    assert len(after.clean) == len(before.clean) + 3
    assert after.reviewed == 3
    assert after.decided == 3
    assert after.decided_wrong == sum(DATA.given[p] != DATA.true[p] for p in (3, 5, 9)), "the removed one has no class"
    added = after.clean.at(torch.arange(len(before.clean), len(after.clean)))
    assert added.label.tolist() == DATA.true[[3, 5, 9]].tolist()
    (inputs,) = added.store.batches([added.index])
    assert torch.equal(inputs, torch.tensor(DATA.x[[3, 5, 9]]))
    assert added.origin is not None
    assert [added.origin.ids[position] for position in added.index.tolist()] == ["n3", "n5", "n9"]


@pytest.mark.parametrize("number", [True, False])
def test_held_out_parts_and_counts_stay_as_they_were(number: bool) -> None:
    # All reviewed samples were wrong: counted with the others, they would change the matrix.
    before = make_splits(NOISY, 200, seed=3) if number else separate([f"n{number}" for number in range(200)])
    wrong = [p for p in before.train.index.tolist() if DATA.given[p] != DATA.true[p]]
    after = with_reviewed(before, decided(wrong))
    assert after.select is before.select
    assert after.report is before.report
    assert before.pairs is not None
    assert after.pairs is not None
    assert all(torch.equal(a, b) for a, b in zip(after.pairs, before.pairs, strict=True))
    assert after.unbiased_clean is not None
    assert before.clean is not None
    assert torch.equal(after.unbiased_clean.index, before.clean.index)


def test_without_a_clean_set_they_are_the_clean_set() -> None:
    after = with_reviewed(make_splits(NOISY, None), decided([1, 2]))
    assert after.clean is not None
    assert after.clean.index.tolist() == [1, 2]
    assert after.unbiased_clean is after.clean, "there is nothing fairer"
    assert after.pairs is None


def test_decisions_about_clean_samples_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mslg")
    before = make_splits(NOISY, 200, seed=3)
    assert before.report is not None
    held_out = before.report.index.tolist()[:4]
    assert with_reviewed(before, decided(held_out)) is before
    assert "4 decisions are about samples of the clean set, whose verified labels are kept" in caplog.text


def test_a_training_set_must_be_left() -> None:
    with pytest.raises(ValueError, match="1 training samples are left"):
        with_reviewed(make_splits(NOISY, None), decided(list(range(239)), "remove"))


def structured(kind: str, values: Tensor) -> Any:
    return {"tensor": values, "tuple": (values, 2 * values), "dict": {"a": values, "b": 2 * values}}[kind]


@pytest.mark.parametrize("kind", ["tensor", "tuple", "dict"])
def test_joined_inputs_come_in_the_order_asked_for(kind: str) -> None:
    values = torch.arange(20.0).unsqueeze(1)
    store = ConcatStore(TensorStore(structured(kind, values[:12])), TensorStore(structured(kind, values[12:])))
    assert len(store) == 20
    groups = [torch.tensor([13, 2, 19, 0]), torch.tensor([3, 4]), torch.tensor([12, 15, 14])]
    for group, found in zip(groups, store.batches(iter(groups)), strict=True):
        expected = structured(kind, values[group])
        parts = (
            zip(found.values(), expected.values(), strict=True) if kind == "dict" else zip(found, expected, strict=True)
        )
        assert type(found) is type(expected)
        assert all(torch.equal(a, b) for a, b in parts)


def test_joined_sources_of_different_stores() -> None:
    first = make_source(DATA.x[:4], DATA.given[:4], classes=list("0123"))
    dataset = TensorDataset(torch.tensor(DATA.x[4:8]), torch.tensor(DATA.given[4:8]))
    second = Source(DatasetStore(dataset), torch.tensor(DATA.given[4:8]), first.classes, tuple("abcd"))
    both = concat_sources(first, second)
    assert both.ids == ("0", "1", "2", "3", "a", "b", "c", "d")
    (inputs,) = both.store.batches([torch.arange(8)])
    assert np.array_equal(inputs.numpy(), DATA.x[:8])


def test_in_clean_batches_a_reviewed_sample_stands_for_itself_alone() -> None:
    data = with_reviewed(separate(), decided(list(range(24))))
    assert data.clean is not None
    stream = data.clean_batches(0)
    drawn = len(data.clean) - data.reviewed
    taken = torch.cat([next(stream).index for _ in range(60)])
    assert (torch.bincount(next(data.clean_batches(0)).index) <= 1).all(), "no sample twice in a batch"
    share = float((taken >= len(CLEAN_IDS)).double().mean())
    assert share == pytest.approx(24 / 240, abs=0.01), "their share of the data, not of the clean set"
    counts = torch.bincount(taken, minlength=len(CLEAN_IDS) + 24)
    held_out = len(CLEAN_IDS) - drawn
    assert int((counts[: len(CLEAN_IDS)] == 0).sum()) == held_out
    for kind in (counts[: len(CLEAN_IDS)][counts[: len(CLEAN_IDS)] > 0], counts[len(CLEAN_IDS) :]):
        assert int(kind.max() - kind.min()) <= 1, "all equally often"


def test_clean_batches_follow_from_the_position() -> None:
    data = with_reviewed(separate(), decided(list(range(24))))
    whole = data.clean_batches(3)
    batches = [next(whole) for _ in range(9)]
    resumed = data.clean_batches(3, start=5)
    for batch in batches[5:]:
        assert torch.equal(next(resumed).index, batch.index)
    assert resumed.position == 9


@pytest.mark.parametrize(("count", "size", "steps"), [(24, 8, 10), (7, 8, 1), (30, 4, 3), (2, 64, 5), (6, 2, 4)])
def test_every_reviewed_sample_is_visited_once_an_epoch(count: int, size: int, steps: int) -> None:
    chosen = decided(list(range(count)))
    data = with_reviewed(make_splits(NOISY, None, batch_size=size), chosen)
    for epoch in (0, 1):
        batches = [batch for step in range(steps) for batch in data.reviewed_batches(epoch, step, steps)]
        index = torch.cat([batch.index for batch in batches])
        assert sorted(index.tolist()) == list(range(count))
        assert torch.equal(torch.cat([batch.label for batch in batches]), torch.tensor(DATA.true)[index])
        assert max(len(batch.index) for batch in batches) <= size
        assert min(len(batch.index) for batch in batches) > 1, "batch norm cannot take one alone"


def test_no_reviewed_sample_is_studied_alone_in_the_smallest_batches() -> None:
    data = with_reviewed(make_splits(NOISY, None, batch_size=2), decided([1, 2, 3, 4, 5]))
    sizes = [len(batch.index) for step in range(4) for batch in data.reviewed_batches(0, step, 4)]
    assert sorted(sizes) == [2, 3]


def test_one_reviewed_sample_alone_only_steers() -> None:
    data = with_reviewed(make_splits(NOISY, None), decided([4]))
    assert list(data.reviewed_batches(0, 0, 1)) == []
    assert next(data.clean_batches(0)).index.tolist() == [4]

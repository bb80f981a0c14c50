"""Training, clean and held-out parts never overlap, and their order is a function of the seed."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mslg.data.make_splits import balanced, held_out_of_train, make_splits
from mslg.data.source import Positions, Source, make_source
from mslg.data.splits import is_in


def source(
    count: int = 60, *, classes: int = 3, ids: str | None = None, start: int = 0, verified: bool = False
) -> Source:
    x = np.arange(start, start + count, dtype=np.float32)[:, None]
    y = np.arange(count) % classes
    return make_source(
        x,
        y,
        ids=None if ids is None else [f"{ids}{start + i}" for i in range(count)],
        verified_labels=y if verified else None,
    )


def test_a_number_of_clean_samples_comes_out_of_the_training_set() -> None:
    data = make_splits(source(300, verified=True), 240, seed=1)
    assert data.clean is not None
    assert data.select is not None
    assert data.report is not None
    parts = [data.train.index, data.clean.index, data.select.index, data.report.index]
    together = torch.cat(parts)
    assert sorted(together.tolist()) == list(range(300))
    assert [len(part) for part in parts] == [60, 144, 48, 48]
    for part in (data.clean, data.select, data.report):
        assert torch.bincount(part.label).tolist() == [len(part) // 3] * 3


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(240, [240, 0, 0]), (679, [679, 0, 0]), (680, [600, 40, 40]), (900, [600, 150, 150]), (1500, [900, 300, 300])],
)
def test_a_method_that_cross_fits_holds_nothing_out_before_it_has_600_clean_samples(
    count: int, sizes: list[int]
) -> None:
    data = make_splits(source(1600, verified=True), count, seed=1, cross_fits=True)
    assert [0 if part is None else len(part) for part in (data.clean, data.select, data.report)] == sizes


def test_pairs_of_held_out_samples_are_not_handed_to_the_method() -> None:
    noisy = source(300)
    noisy = noisy.with_label((noisy.label + (torch.arange(300) % 5 == 0)) % 3)
    data = make_splits(noisy, 240, seed=1)
    assert data.pairs is not None
    assert len(data.pairs[0]) == 144
    everything = make_splits(noisy, 240, seed=1, hold_out=False)
    assert everything.pairs is not None
    assert len(everything.pairs[0]) == 240


def test_verification_that_only_confirms_is_no_evidence_of_the_noise(caplog: pytest.LogCaptureFixture) -> None:
    noisy = source(300, verified=True)
    everything = make_splits(noisy, 100, seed=1).pairs  # a fair draw out of data of which every label is verified
    assert everything is not None
    assert torch.equal(*everything)
    assert not caplog.text
    assert noisy.verified_label is not None
    noisy.verified_label[:150] = -1
    assert make_splits(noisy, 100, seed=1).pairs is None
    assert "the given and verified labels of all 100 clean samples agree" in caplog.text


def test_ids_that_look_like_positions_are_ids_when_given() -> None:
    x, y = np.arange(60, dtype=np.float32)[:, None], np.arange(60) % 3
    noisy = make_source(x, y, ids=[str(i) for i in range(60)])
    clean = make_source(x[[5, 17, 40]], y[[5, 17, 40]], ids=["5", "17", "40"], classes=["0", "1", "2"])
    assert len(make_splits(noisy, clean).train) == 57


def test_few_clean_samples_are_all_used() -> None:
    data = make_splits(source(), source(30, start=1000))
    assert data.clean is not None
    assert len(data.clean) == 30
    assert data.select is None
    assert data.report is None


def test_the_same_id_in_both_sets_moves_to_the_clean_one(caplog: pytest.LogCaptureFixture) -> None:
    noisy, clean = source(ids="a"), source(12, ids="a", start=30)
    with caplog.at_level(logging.INFO, logger="mslg"):
        data = make_splits(noisy, clean)
    assert sorted(data.train.index.tolist()) == [*range(30), *range(42, 60)]
    assert data.pairs is not None
    assert torch.equal(data.pairs[0], noisy.label[30:42])
    assert torch.equal(data.pairs[1], clean.label)
    assert "12 samples are in both sets: moved to the clean set" in caplog.text


def test_the_same_content_under_another_id_is_refused() -> None:
    with pytest.raises(ValueError, match="sample 'b30' of the clean set has the same content as sample 'a30'"):
        make_splits(source(ids="a"), source(12, ids="b", start=30))


def test_clean_classes_must_be_the_same() -> None:
    with pytest.raises(ValueError, match="only in the clean set: none; only in the noisy set: 2"):
        make_splits(source(), source(12, classes=2, start=1000))


def test_a_single_left_over_sample_joins_the_last_batch() -> None:
    data = make_splits(source(65), None, batch_size=16)
    assert [len(batch.index) for batch in data.batches(0)] == [16, 16, 16, 17]
    assert data.steps() == 4


def test_excluded_samples_are_not_trained_on_and_serve_as_the_clean_set() -> None:
    data = make_splits(source(), None, batch_size=16, clean_batch_size=4)
    excluded = torch.tensor([3, 7, 11, 20])
    seen = torch.cat([batch.index for batch in data.batches(0, excluded=excluded)])
    assert sorted(seen.tolist()) == sorted(set(range(60)) - set(excluded.tolist()))
    clean = data.clean_batches(0, excluded=excluded)
    assert sorted(next(clean).index.tolist()) == excluded.tolist()


def test_clean_batches_can_start_anywhere() -> None:
    data = make_splits(source(), source(10, start=1000), clean_batch_size=4)
    stream = data.clean_batches(2)
    seen = [next(stream).index.tolist() for _ in range(7)]
    for start in range(7):
        again = data.clean_batches(2, start=start)
        assert [next(again).index.tolist() for _ in range(7 - start)] == seen[start:]
    assert len({tuple(sorted(batch)) for batch in seen}) > 2, "reshuffled when used up"


def test_training_batches_can_start_anywhere() -> None:
    data = make_splits(source(), None, batch_size=16)
    seen = [batch.index.tolist() for batch in data.batches(5)]
    assert [batch.index.tolist() for batch in data.batches(5, start=2)] == seen[2:]


@given(count=st.integers(1, 60), classes=st.integers(2, 6), seed=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_a_balanced_choice_is_as_even_as_can_be(count: int, classes: int, seed: int) -> None:
    labels = torch.arange(60) % classes
    chosen = balanced(labels, count, classes, seed)
    counts = torch.bincount(labels[chosen], minlength=classes)
    assert len(chosen) == count
    assert len(set(chosen.tolist())) == count
    assert int(counts.max() - counts.min()) <= 1


def half_verified(count: int = 60) -> Source:
    """Every third given label is wrong; of two samples one is verified."""
    right = source(count, ids="a")
    verified = right.label.clone()
    verified[::2] = -1
    noisy = right.with_label((right.label + (torch.arange(count) % 3 == 0)) % 3)
    return replace(noisy, verified_label=verified, true_label=right.label)


def test_a_test_set_cut_from_the_training_set_has_verified_labels() -> None:
    whole = half_verified()
    train, test = held_out_of_train(whole, 15, seed=4)
    assert (len(train), len(test)) == (45, 15)
    assert set(train.ids) | set(test.ids) == set(whole.ids)
    place = torch.tensor([whole.ids.index(name) for name in test.ids])
    assert (place % 2 == 1).all(), "only verified samples"
    assert whole.verified_label is not None
    assert torch.equal(test.label, whole.verified_label[place])
    assert (whole.label[place] != test.label).any(), "which are not the given ones"
    assert torch.bincount(test.label).tolist() == [5, 5, 5]
    assert test.true_label is None
    kept = torch.tensor([whole.ids.index(name) for name in train.ids])
    assert torch.equal(train.label, whole.label[kept])
    assert train.true_label is not None
    assert train.verified_label is not None
    assert torch.equal(train.verified_label, whole.verified_label[kept])
    (inputs,) = test.store.batches([torch.arange(15)])
    assert [f"a{int(value)}" for value in inputs.flatten()] == list(test.ids)


def test_a_test_set_cut_from_the_training_set_depends_on_the_seed_alone() -> None:
    chosen = [held_out_of_train(half_verified(), 15, seed=seed)[1].ids for seed in (4, 4, 5)]
    assert chosen[0] == chosen[1] != chosen[2]
    data = make_splits(held_out_of_train(half_verified(), 15, seed=4)[0], 6, seed=4)
    assert data.clean is not None
    assert len(data.clean) == 6


@pytest.mark.parametrize("count", [0, -3, 30, 31])
def test_too_many_test_samples_from_the_training_set_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} test samples were requested; from 1 to 29 are possible"):
        held_out_of_train(half_verified(), count, seed=0)


def test_test_samples_without_verified_labels_are_refused() -> None:
    message = "a number of test samples was requested, but the data has no verified labels; pass a separate"
    with pytest.raises(ValueError, match=message):
        held_out_of_train(source(), 10, seed=0)


def test_contents_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslg.data.content.CHUNK", 7)
    whole = torch.arange(40.0).view(20, 2)
    noisy = make_source(whole, torch.arange(20) % 2)
    make_splits(noisy, make_source(whole[:4] + 0.5, torch.arange(4) % 2))
    with pytest.raises(ValueError, match=r"sample '1' of the clean set has the same content as sample '16'"):
        make_splits(noisy, make_source(torch.stack([whole[3] + 0.5, whole[16]]), torch.arange(2)))


@pytest.mark.parametrize("count", [2, 15, 16, 17, 31, 32, 33])
def test_batches_hold_every_sample_once_and_are_as_many_as_foretold(count: int) -> None:
    data = make_splits(source(count, classes=2), None, batch_size=16)
    batches = list(data.batches(0))
    assert len(batches) == data.steps()
    assert all(2 <= len(batch.index) <= 17 for batch in batches)
    assert sorted(torch.cat([batch.index for batch in batches]).tolist()) == list(range(count))


@pytest.mark.parametrize("count", [40, 41, 47])
def test_the_parts_of_several_processes_are_those_of_an_even_split(count: int) -> None:
    data = replace(make_splits(source(count, classes=2), None, batch_size=8), rank=1, ranks=2)
    lengths = [len(batch.index) for batch in data.batches(0)]
    dealt = torch.arange(count // 2)  # as many for both
    assert lengths == [len(part) for part in dealt.tensor_split(data.steps())]


def test_membership_is_that_of_isin() -> None:
    index, some = torch.randperm(50)[:20], torch.tensor([3, 49, 7])
    assert torch.equal(is_in(index, some), torch.isin(index, some))


def test_ids_that_are_positions_take_no_room_and_are_those_of_a_list() -> None:
    ids, texts = Positions(200_000), [str(number) for number in range(200_000)]
    assert ids == texts
    assert (ids[3], ids[-1], ids[10:12]) == ("3", "199999", ("10", "11"))
    assert "7" in Positions(8)
    assert "8" not in Positions(8)
    with pytest.raises(IndexError):
        Positions(8)[8]
    listed = replace(source(), ids=tuple(map(str, range(60))))
    assert source().ids == listed.ids


def test_a_fingerprint_of_ids_in_pieces_is_that_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = source(ids="photo").fingerprint()
    monkeypatch.setattr("mslg.data.source.CHUNK", 7)
    assert source(ids="photo").fingerprint() == whole

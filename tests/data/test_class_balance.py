"""Drawing training samples such that given classes are equally frequent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mslg
from mslg.data.class_balance import balanced_order
from mslg.data.make_splits import make_splits
from mslg.data.source import Source, make_source
from mslg.data.splits import Splits
from mslg.methods.cross_entropy import CrossEntropy
from mslg.training.method import Task
from tests.support.blobs import blobs, small_network
from tests.support.method_problems import Problem, check_resume, sgd


def imbalanced(counts: tuple[int, ...] = (200, 60, 31, 9)) -> Source:
    label = np.repeat(np.arange(len(counts)), counts)[np.random.default_rng(0).permutation(sum(counts))]
    return make_source(np.arange(len(label), dtype=np.float32)[:, None], label)


def epoch_of(data: Splits, epoch: int = 0, start: int = 0) -> list[torch.Tensor]:
    return [batch.index for batch in data.batches(epoch, start=start)]


def test_classes_are_equally_frequent_in_an_epoch_of_the_same_length() -> None:
    plain = make_splits(imbalanced(), None, batch_size=32, seed=1)
    data = replace(plain, class_balance=True)
    batches = epoch_of(data)
    assert [len(batch) for batch in batches] == [len(batch) for batch in epoch_of(plain)]
    label = data.source.label[torch.cat(batches)]
    assert (label.bincount() - 75).abs().max() <= 1
    for batch in batches:
        assert len(batch.unique()) == len(batch)  # per-sample tables are written once per batch
    large = torch.cat(batches)[label == 1].bincount(minlength=300)[data.source.label == 1]
    assert set(large.tolist()) <= {1, 2}  # all are visited before one is repeated
    assert not torch.equal(torch.cat(batches), torch.cat(epoch_of(data, 1)))


def test_a_class_with_fewer_samples_than_its_share_of_a_batch_has_each_once_per_batch() -> None:
    data = make_splits(imbalanced((100, 100, 3)), None, batch_size=30, class_balance=True)
    for batch in epoch_of(data)[:-1]:
        counts = data.source.label[batch].bincount(minlength=3).tolist()
        assert counts[2] == 3
        assert sorted(counts[:2]) in ([13, 14], [14, 13], [13, 13], [14, 14])


@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=12),
    size=st.integers(1, 50),
    batches=st.integers(1, 12),
    seed=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_batches_have_their_sizes_and_no_sample_twice(counts: list[int], size: int, batches: int, seed: int) -> None:
    label = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    sizes = [min(size, len(label))] * batches
    order = balanced_order(label, sizes, torch.Generator().manual_seed(seed))
    assert len(order) == sum(sizes)
    for batch in order.split(sizes):
        assert len(batch.unique()) == len(batch)
    visits = label[order].bincount(minlength=len(counts))
    share = len(order) / len(counts)
    rare = torch.tensor(counts) * batches < share
    assert (visits[rare] == torch.tensor(counts)[rare] * batches).all()
    if not rare.any() and min(counts) > size:
        assert (visits - share).abs().max() <= 1


def test_an_epoch_can_start_anywhere_and_leave_samples_out() -> None:
    data = make_splits(imbalanced(), None, batch_size=32, class_balance=True)
    assert all(map(torch.equal, epoch_of(data, 2)[3:], epoch_of(data, 2, start=3)))
    excluded = (data.source.label == 3).nonzero().flatten()[:4]
    drawn = torch.cat([batch.index for batch in data.batches(0, excluded=excluded)])
    assert not torch.isin(drawn, excluded).any()
    assert (data.source.label[drawn] == 3).sum() >= 40  # five samples in each of the batches


def test_two_ranks_see_disjoint_samples_and_equal_shares() -> None:
    whole = make_splits(imbalanced((201, 60, 30, 10)), None, batch_size=32, class_balance=True)
    parts = [epoch_of(replace(whole, rank=rank, ranks=2)) for rank in range(2)]
    assert [len(batch) for batch in parts[0]] == [len(batch) for batch in parts[1]]
    for rank, part in enumerate(parts):
        index = torch.cat(part)
        assert (index % 2 == rank).all()  # each rank owns the tables' rows of its samples
        counts = whole.source.label[index].bincount()
        assert counts.max() - counts.min() <= 3


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_rank_draws_its_own_samples_by_weight(ranks: int) -> None:
    source = imbalanced((201, 60, 30, 10))
    weights = torch.tensor([1.0, 2.0, 5.0, 10.0], dtype=torch.float64)[source.label]
    whole = make_splits(source, None, batch_size=36, weights=weights)
    counts = torch.zeros(len(source))
    for epoch in range(20):
        parts = [epoch_of(replace(whole, rank=rank, ranks=ranks), epoch) for rank in range(ranks)]
        for batches in zip(*parts, strict=True):
            assert len({len(batch) for batch in batches}) == 1  # so that means over ranks are those of the samples
            assert all(len(batch.unique()) == len(batch) for batch in batches)
        for rank, part in enumerate(parts):
            assert (torch.cat(part) % ranks == rank).all()  # each rank owns the tables' rows of its samples
            counts += torch.cat(part).bincount(minlength=len(source))
    visits = torch.stack([counts[source.label == kind].mean() for kind in range(4)])
    wanted = torch.tensor([1.0, 2.0, 5.0, 10.0])
    # A sample is at most once in a batch, so the heaviest may fall short of its share.
    assert torch.allclose(visits[:3] / visits[0], wanted[:3], rtol=0.15)
    assert visits[2] < visits[3] <= 20 * len(parts[0])


def test_a_resumed_run_goes_on_in_the_same_order() -> None:
    def build() -> Problem:
        drawn = blobs(clean=8)
        noisy = make_source(drawn.x, drawn.given)
        data = make_splits(noisy, make_source(drawn.clean_x, drawn.clean_y), batch_size=32, class_balance=True)
        return CrossEntropy(Task(noisy.label, 4, small_network, 3, 32, optimizer=sgd)), data

    check_resume(build, 11)


@pytest.mark.parametrize("method", ["mslg", "cross-entropy"])
def test_rare_digits_are_learned(method: str) -> None:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype(np.float32), y.astype(np.int64)
    half = len(x) // 2
    rare = np.flatnonzero(y[:half] % 2)
    kept = np.setdiff1d(np.arange(half), [i for d in range(1, 10, 2) for i in rare[y[rare] == d][5:]])
    scores = []
    for balance in (False, True):
        result = mslg.fit(
            lambda: torch.nn.Linear(64, 10),
            (x[kept], y[kept]),
            (x[half : half + 100], y[half : half + 100]),
            method=method,
            epochs=8,
            class_balance=balance,
            progress=False,
        )
        with torch.no_grad():
            predicted = result.model(torch.from_numpy(x[half + 100 :])).argmax(1).numpy()
        right = predicted == y[half + 100 :]
        scores.append(float(right[y[half + 100 :] % 2 == 1].mean()))
    assert scores[1] > scores[0] + 0.3

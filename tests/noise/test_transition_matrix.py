"""Where transition matrices come from."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mslg.noise.transition_matrix import (
    STRENGTHS,
    anchors,
    check_transition,
    count,
    deconvolved,
    leave_one_out,
    pool,
    smooth,
)

EYE = torch.eye(10, dtype=torch.float64)
NOISES = {
    "uniform": 0.6 * EYE + 0.4 / 9 * (1 - EYE),
    "pair": 0.6 * EYE + 0.4 * EYE.roll(1, dims=1),
    "one class": 0.6 * EYE + 0.4 * torch.nn.functional.one_hot(torch.tensor(9), 10).double(),
}


def draw(transition: Tensor, each: int, seed: int) -> tuple[Tensor, Tensor]:
    """Given and verified labels of `each` samples a class."""
    generator = torch.Generator().manual_seed(seed)
    verified = torch.arange(len(transition)).repeat_interleave(each)
    given = torch.multinomial(transition[verified], 1, generator=generator).squeeze(1)
    return given, verified


def test_counting_equals_a_loop() -> None:
    given, verified = draw(NOISES["uniform"], 50, seed=0)
    expected = torch.zeros(10, 10, dtype=torch.float64)
    for g, v in zip(given.tolist(), verified.tolist(), strict=True):
        expected[v, g] += 1
    assert torch.equal(count(given, verified, 10), expected)


def test_smoothing_equals_a_loop() -> None:
    counts = torch.tensor([[6.0, 3.0, 1.0], [0.0, 4.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    stay = (10 + 1) / (14 + 2)
    wrong = [0 + 1, 3 + 1, 1 + 1]
    for strength in (0.5, 3.0):
        found = smooth(counts, strength)
        for i in range(3):
            total = sum(wrong[j] for j in range(3) if j != i)
            for j in range(3):
                prior = stay if i == j else (1 - stay) * wrong[j] / total
                expected = (float(counts[i, j]) + strength * prior) / (float(counts[i].sum()) + strength)
                assert float(found[i, j]) == pytest.approx(expected)
        assert torch.allclose(found[2], pool(counts)[2]), "a class without samples is like the others"


def test_without_smoothing_the_rows_are_the_plain_shares() -> None:
    counts = torch.tensor([[6.0, 4.0], [1.0, 3.0]], dtype=torch.float64)
    assert torch.allclose(smooth(counts, 0.0), torch.tensor([[0.6, 0.4], [0.25, 0.75]]).double(), atol=1e-6)


def test_leaving_one_out_equals_a_loop() -> None:
    counts = count(*draw(NOISES["pair"], 4, seed=1), 10)
    prior = pool(counts)
    expected = 0.0
    for i in range(10):
        for j in range(10):
            for _ in range(int(counts[i, j])):
                others = counts[i].clone()
                others[j] -= 1
                expected += math.log((float(others[j]) + 3 * float(prior[i, j])) / (float(others.sum()) + 3))
    assert leave_one_out(counts, prior, 3.0) == pytest.approx(expected)


@pytest.mark.parametrize("kind", NOISES)
def test_a_hundred_pairs_in_ten_classes_give_a_sane_matrix(kind: str) -> None:
    true = NOISES[kind]
    divergence = {}
    for strength in (None, 0.1, 1.0, 10.0):
        total = 0.0
        for seed in range(10):
            found = smooth(count(*draw(true, 10, seed), 10), strength)
            assert torch.allclose(found.sum(1), torch.ones(10, dtype=torch.float64))
            assert found.min() > 0
            total += float((true * (true.clamp_min(1e-300) / found).log()).sum(1).mean()) / 10
        divergence[strength] = total
    # The chosen strength is nearly as good as the best fixed one, and that differs between the kinds of noise.
    assert divergence[None] < 1.5 * min(divergence[s] for s in (0.1, 1.0, 10.0))
    assert divergence[None] < 0.15


def test_the_choice_of_strength_follows_the_structure_of_the_noise() -> None:
    def chosen(kind: str) -> float:
        counts = count(*draw(NOISES[kind], 50, seed=2), 10)
        return max(STRENGTHS, key=lambda strength: leave_one_out(counts, pool(counts), strength))

    assert chosen("uniform") > 50
    assert chosen("pair") < 1


@pytest.mark.parametrize("percentile", [97, 50, 100])
def test_anchors_equal_a_loop(percentile: float) -> None:
    probs = (3 * torch.randn(200, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).softmax(1)
    found = anchors(probs, percentile)
    for c in range(4):
        values = sorted(float(value) for value in probs[:, c])
        limit = values[math.ceil(percentile / 100 * 199)]
        best, place = -1.0, -1
        for row in range(200):
            value = float(probs[row, c])
            if (value < limit or percentile == 100) and value > best:
                best, place = value, row
        assert torch.allclose(found[c], probs[place] / probs[place].sum())


def test_a_class_passed_over_does_not_change_the_next_one() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
    assert torch.allclose(anchors(probs, 60), torch.tensor([[0.4, 0.6], [0.8, 0.2]]))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.eye(3), r"has the shape \(3, 3\); with 2 classes it must be 2 × 2, rows true and columns given"),
        (torch.tensor([[0.9, 0.2], [0.5, 0.5]]), "sum to between 1 and 1.1 .* each row must be probabilities"),
        (torch.tensor([[1.5, -0.5], [0.0, 1.0]]), "smallest entry is -0.5"),
    ],
)
def test_what_is_not_a_transition_matrix_is_refused(matrix: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_transition(matrix, 2)


CONFUSION = torch.tensor([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]], dtype=torch.float64)
JOINT = torch.tensor([[0.3, 0.05, 0.05], [0.02, 0.28, 0.1], [0.04, 0.06, 0.1]], dtype=torch.float64)


def test_deconvolving_undoes_a_known_confusion() -> None:
    """Rows true, columns given: the shares behind what a predictor with known mistakes sees."""
    seen = CONFUSION.t() @ JOINT
    found = deconvolved(1000 * seen, CONFUSION, steps=3000)
    assert torch.allclose(found, JOINT, atol=1e-3), "and counts will do as well as shares"
    early = deconvolved(seen, CONFUSION)
    assert (early - JOINT).abs().sum() < 0.3 * (seen - JOINT).abs().sum(), "the default number of steps is most of it"
    assert float(early.sum()) == pytest.approx(1)
    assert torch.allclose(deconvolved(JOINT, torch.eye(3, dtype=torch.float64)), JOINT), "a perfect predictor is right"


def test_deconvolving_equals_loops() -> None:
    seen = CONFUSION.t() @ JOINT
    found = seen.clone()
    for _ in range(7):
        new = torch.zeros(3, 3, dtype=torch.float64)
        for given in range(3):
            for predicted in range(3):
                behind = [float(CONFUSION[true, predicted] * found[true, given]) for true in range(3)]
                for true in range(3):
                    new[true, given] += seen[predicted, given] * behind[true] / sum(behind)
        found = new
    assert torch.allclose(deconvolved(seen, CONFUSION, steps=7), found)


def test_deconvolving_many_at_once() -> None:
    confusions = torch.stack([CONFUSION, torch.eye(3, dtype=torch.float64), CONFUSION.flip(0, 1)])
    seen = CONFUSION.t() @ JOINT
    found = deconvolved(seen.expand(3, -1, -1), confusions)
    for confusion, each in zip(confusions, found, strict=True):
        assert torch.allclose(each, deconvolved(seen, confusion))

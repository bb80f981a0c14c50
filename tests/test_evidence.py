"""The label given and the prediction weighed against each other, and what comes of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import mslg
from mslg.division import split
from mslg.evidence import BAYES, HELD_NEAR, LEAST, Evidence, bayes, weigh
from mslg.issues import label_frame, posterior, suggestions
from mslg.method import Task
from mslg.methods.cross_entropy import CrossEntropy
from mslg.methods.transition import count, smooth
from mslg.source import Source, make_source
from mslg.splits import Splits
from mslg.trace import Trace
from mslg.train import Position, train

from .blobs import blobs, small_network

T4 = torch.full((4, 4), 0.1, dtype=torch.float64).fill_diagonal_(0.7)
LOPSIDED = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], dtype=torch.float64)


def drawn(samples: int, transition: Tensor, sharpness: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Predictions made `sharpness` times as confident as they deserve, given labels and true ones."""
    random = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(samples, len(transition), generator=random, dtype=torch.float64)
    true = torch.multinomial(logits.softmax(1), 1, generator=random).squeeze(1)
    given = torch.multinomial(transition[true], 1, generator=random).squeeze(1)
    return (sharpness * logits).softmax(1), given, true


def log_likelihood(evidence: Evidence, probs: Tensor, given: Tensor, true: Tensor) -> float:
    return float(evidence.posterior(probs, given).log().gather(1, true.unsqueeze(1)).mean())


def test_the_posterior_equals_a_slow_one() -> None:
    probs, given, _ = drawn(20, LOPSIDED, 1.0, 0)
    weights, centre = [0.8, 1.3, 0.4, -0.2, 0.5], [-1.1, -0.3]
    columns = bayes(LOPSIDED).columns
    evidence = Evidence(columns, *(torch.tensor(values, dtype=torch.float64) for values in (weights, centre)))
    a, b, c, d, e = weights
    found = evidence.posterior(probs, given)
    for row, label, result in zip(probs.tolist(), given.tolist(), found.tolist()):
        mass = []
        for k in range(3):
            m = row[k] ** a * max(float(LOPSIDED[k, label]), LEAST) ** b
            if k == label:
                m *= math.exp(c + d * (math.log(row[label]) - centre[0]) + e * (math.log(max(row)) - centre[1]))
            mass.append(m)
        assert result == pytest.approx([m / sum(mass) for m in mass], rel=1e-9)


def test_unfitted_weights_are_bayes_rule() -> None:
    probs, given, _ = drawn(20, T4, 1.0, 1)
    found = bayes(T4).posterior(probs, given)
    for row, label, result in zip(probs.tolist(), given.tolist(), found.tolist()):
        mass = [row[k] * float(T4[k, label]) for k in range(4)]
        assert result == pytest.approx([m / sum(mass) for m in mass], rel=1e-9)
    assert bayes(T4).weights.tolist() == list(BAYES)


def test_a_probability_of_zero_is_only_very_unlikely() -> None:
    sure = torch.tensor([[1.0, 0.0, 0.0]])
    found = bayes(LOPSIDED).posterior(sure, torch.tensor([2]))  # which class 0 is never given
    assert torch.isfinite(found).all()
    assert float(found.sum()) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(5))
def test_fitted_weights_explain_new_samples_better_when_predictions_are_too_sure(seed: int) -> None:
    plain = bayes(T4)
    fitted = plain.fitted(*drawn(200, T4, 4.0, seed))
    new = drawn(2000, T4, 4.0, 100 + seed)
    assert log_likelihood(fitted, *new) > log_likelihood(plain, *new) + 0.1
    assert float(fitted.weights[0]) < 0.7, "the prediction counts less"


@pytest.mark.parametrize("seed", range(5))
def test_fitted_weights_stay_near_bayes_rule_when_predictions_are_honest(seed: int) -> None:
    plain = bayes(T4)
    fitted = plain.fitted(*drawn(200, T4, 1.0, seed))
    new = drawn(2000, T4, 1.0, 100 + seed)
    assert log_likelihood(fitted, *new) > log_likelihood(plain, *new) - 0.03
    assert (fitted.weights - plain.weights).abs().max() < 0.6


def test_the_fit_is_the_best_there_is() -> None:
    probs, given, true = drawn(150, T4, 3.0, 0)
    fitted = bayes(T4).fitted(probs, given, true)

    def penalised(weights: Tensor) -> float:
        loss = -len(true) * log_likelihood(replace(fitted, weights=weights), probs, given, true)
        return loss + HELD_NEAR / 2 * float(((weights - torch.tensor(BAYES).double()) ** 2).sum())

    best = penalised(fitted.weights)
    for place in range(5):
        for step in (-0.01, 0.01):
            moved = fitted.weights.clone()
            moved[place] += step
            assert penalised(moved) > best


def noisy_blobs(rate: float, samples: int = 480) -> tuple[Source, np.ndarray]:
    data = blobs(samples=samples, rate=rate)
    return make_source(data.x, data.given, true_labels=data.true, verified_labels=data.true), data.true


def trained(source: Source, clean: Any, **settings: Any) -> tuple[CrossEntropy, Splits, Trace]:
    data = split(source, clean, batch_size=32, seed=1, **settings)
    task = Task(source.label, 4, small_network, 6, 32, pairs=data.pairs, seed=1)
    method = CrossEntropy(task)
    position = Position(Trace(source.label, 4))
    for _ in train(method, data, epochs=6, position=position):
        pass
    return method, data, position.trace


def test_the_weights_come_from_held_out_samples_and_the_matrix_from_the_others() -> None:
    source, _ = noisy_blobs(0.3)
    method, data, trace = trained(source, 220)
    assert data.pairs is not None
    assert data.select is not None
    assert data.select.given is not None
    method.train()
    found = weigh(method, data, trace)
    assert method.training, "as it was"
    plain = bayes(smooth(count(*data.pairs, 4), None))
    assert torch.equal(found.columns, plain.columns)
    method.eval()
    (batch,) = data.in_order(data.select)
    with torch.no_grad():
        probs = method.predict(batch.inputs).exp()
    expected = plain.fitted(probs, data.select.given, data.select.label)
    assert torch.allclose(found.weights, expected.weights, atol=1e-6)
    assert (found.weights - plain.weights).abs().max() > 0.01
    assert found.weights.requires_grad is False


def test_without_a_held_out_part_it_is_bayes_rule() -> None:
    source, _ = noisy_blobs(0.3)
    method, data, trace = trained(source, 220, hold_out=False)
    assert data.select is None
    assert weigh(method, data, trace).weights.tolist() == list(BAYES)
    method, data, trace = trained(source, 220)
    assert data.select is not None
    assert data.select.given is not None
    for given in (None, torch.full_like(data.select.given, -1)):
        alone = replace(data, select=replace(data.select, given=given))
        assert weigh(method, alone, trace).weights.tolist() == list(BAYES)


def test_without_doubly_labelled_samples_predictions_stand_in_for_true_labels() -> None:
    source, _ = noisy_blobs(0.3)
    apart = blobs(clean=24, seed=5)
    method, data, trace = trained(source, make_source(apart.clean_x, apart.clean_y))
    assert data.pairs is None
    trace.visits[:100] = 0  # never seen: not counted
    found = weigh(method, data, trace)
    counts = torch.zeros(4, 4, dtype=torch.float64)
    for sample in range(100, 480):
        counts[int(trace.mean[sample].argmax()), int(source.label[sample])] += 1
    assert torch.allclose(found.columns, smooth(counts, None).clamp_min(LEAST).log().t())
    assert found.weights.tolist() == list(BAYES)


def test_samples_that_were_never_trained_on_keep_their_label() -> None:
    source, _ = noisy_blobs(0.3, samples=240)
    trace = Trace(source.label, 4)
    wrong = (source.label[:200] + 1) % 4
    trace.fold(torch.arange(200), (0.01 + 0.96 * torch.nn.functional.one_hot(wrong, 4).float()).log())
    data = split(source, None)
    method = CrossEntropy(Task(source.label, 4, small_network, 2, 32))
    index = torch.arange(240)
    found = posterior(trace, bayes(T4), index, source.label)
    assert torch.equal(found[200:], torch.nn.functional.one_hot(source.label[200:], 4).double())
    suggested = suggestions(source, data, trace, bayes(T4))
    assert torch.equal(suggested[200:], source.label[200:])
    assert torch.equal(suggested[:200], wrong)
    labels = label_frame(source, data, method, trace, bayes(T4))
    unseen, seen = labels[200:], labels[:200]
    assert unseen["label_quality"].isna().all()
    assert not unseen["is_label_issue"].any()
    assert unseen["rank"].min() == 200, "ranked behind all others"
    assert (unseen["suggested_label"] == unseen["given_label"]).all()
    assert seen["is_label_issue"].all()
    assert np.allclose(seen["label_quality"], found[:200].gather(1, source.label[:200, None]).squeeze(1))


def test_a_label_is_kept_unless_the_evidence_against_it_is_strong_enough() -> None:
    """The prediction alone would change it: how often labels are right counts too."""
    source = make_source(np.zeros((2, 1), dtype=np.float32), [0, 1], classes=["0", "1", "2", "3"])
    trace = Trace(source.label, 4)
    trace.fold(torch.arange(2), torch.tensor([[0.3, 0.6, 0.05, 0.05], [0.05, 0.05, 0.85, 0.05]]).log())
    labels = label_frame(
        source, split(source, None), CrossEntropy(Task(source.label, 4, small_network, 2)), trace, bayes(T4)
    )
    assert labels["predicted_label"].tolist() == ["1", "2"]
    assert labels["suggested_label"].tolist() == ["0", "2"]
    assert labels["is_label_issue"].tolist() == [False, True]
    assert labels["label_quality"][0] == pytest.approx(0.3 * 0.7 / (0.3 * 0.7 + 0.7 * 0.1))
    assert labels["rank"].tolist() == [1, 0]


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("rate", [0.2, 0.4])
def test_suggestions_are_more_often_right_than_given_labels(rate: float, pairs: bool) -> None:
    source, _ = noisy_blobs(rate)
    apart = blobs(clean=24, seed=5)
    clean = 220 if pairs else make_source(apart.clean_x, apart.clean_y)
    result = mslg.fit(small_network, source, clean, method="cross-entropy", epochs=12, batch_size=32, progress=False)
    last = result.summary["last"]
    assert last["suggested/accuracy"] > last["given/accuracy"] + (0.1 if pairs else 0.05)
    assert source.true_label is not None
    suggested = result.labels["suggested_label"].astype(int).to_numpy()
    true = source.true_label[[source.ids.index(name) for name in result.labels["id"]]].numpy()
    assert (suggested == true).mean() == pytest.approx(last["suggested/accuracy"])

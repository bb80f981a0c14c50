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
from mslg.data.make_splits import make_splits
from mslg.data.source import Source, make_source
from mslg.data.splits import Splits
from mslg.issues.error_rate import ErrorRate
from mslg.issues.posterior import (
    BAYES,
    COPIES,
    FEWEST,
    FOLDS,
    HELD_NEAR,
    LEAST,
    Evidence,
    Labelled,
    bayes,
    labelled,
    log_odds,
    posterior_from,
    weigh,
)
from mslg.issues.ranked_list import Judgement, label_frame, suggestions
from mslg.methods.cross_entropy import CrossEntropy
from mslg.noise.transition_matrix import count, deconvolved, smooth
from mslg.training.loop import Position, train
from mslg.training.method import Task
from mslg.training.prediction_history import PredictionHistory
from tests.support.blobs import blobs, small_network

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


def trained(source: Source, clean: Any, **settings: Any) -> tuple[CrossEntropy, Splits, PredictionHistory]:
    data = make_splits(source, clean, batch_size=32, seed=1, **settings)
    task = Task(source.label, 4, small_network, 6, 32, pairs=data.pairs, seed=1)
    method = CrossEntropy(task)
    position = Position(PredictionHistory(source.label, 4))
    for _ in train(method, data, epochs=6, position=position):
        pass
    return method, data, position.history


def judged(source: Source, data: Splits, history: PredictionHistory, evidence: Evidence) -> Judgement:
    """By this evidence, with nothing to say about its worth."""
    index = data.train.index
    odds = evidence.odds(history.said(index), source.label[index])
    rate = ErrorRate(len(index), "none", 0, "there are no clean samples")
    return Judgement(evidence, rate, torch.where(history.seen(index), odds, torch.nan), None)


def test_the_odds_are_those_of_the_posterior() -> None:
    probs, given, _ = drawn(20, T4, 1.0, 0)
    evidence = bayes(T4)
    right = evidence.posterior(probs, given).gather(1, given.unsqueeze(1)).squeeze(1)
    for odds, part in zip(evidence.odds(probs, given).tolist(), right.tolist()):
        assert odds == pytest.approx(math.log((1 - part) / part))
    assert torch.isfinite(log_odds(torch.tensor([0.0, 1.0]))).all(), "nothing is quite certain"


def test_the_matrix_is_the_one_that_it_was_made_with() -> None:
    assert torch.allclose(bayes(LOPSIDED).transition(), LOPSIDED.clamp_min(LEAST))


def test_predictions_rounded_to_nothing_still_rank_in_order() -> None:
    """Half precision knows no number between 0 and 6e-8: what is below stands for very unlikely, not for impossible."""
    probs = torch.tensor([[1.0, 3e-8, 0, 0], [0.9, 0.1, 0, 0], [1e-8, 1.0, 0, 0]]).half()
    odds = bayes(T4).odds(probs, torch.tensor([0, 0, 0]))
    assert torch.isfinite(odds).all()
    assert odds[0] < odds[1] < odds[2]


def test_the_weights_come_from_held_out_samples_and_the_matrix_from_the_others() -> None:
    source, _ = noisy_blobs(0.3)
    method, data, history = trained(source, 220)
    assert data.pairs is not None
    assert data.select is not None
    assert data.report is not None
    assert data.select.given is not None
    assert data.report.given is not None
    method.train()
    weighed = weigh(method, data, history)
    assert method.training, "as it was"
    assert weighed.basis == "pairs"
    found = weighed.evidence
    plain = bayes(smooth(count(*data.pairs, 4), None))
    assert torch.equal(found.columns, plain.columns)
    method.eval()
    batches = [*data.in_order(data.select), *data.in_order(data.report)]
    with torch.no_grad():
        probs = torch.cat([method.predict(batch.inputs).exp() for batch in batches])
    given = torch.cat([data.select.given, data.report.given])
    expected = plain.fitted(probs, given, torch.cat([data.select.label, data.report.label]))
    assert torch.allclose(found.weights, expected.weights, atol=1e-6)
    assert (found.weights - plain.weights).abs().max() > 0.01
    assert found.weights.requires_grad is False


def test_without_a_held_out_part_the_steering_samples_must_do() -> None:
    source, _ = noisy_blobs(0.3)
    method, data, history = trained(source, 220, hold_out=False)
    assert data.select is None
    assert data.pairs is not None
    steering = labelled(method, data, (data.clean,))
    assert steering is not None
    weighed = weigh(method, data, history)
    expected = bayes(smooth(count(*data.pairs, 4), None)).fitted(steering.probs, steering.given, steering.verified)
    assert torch.allclose(weighed.evidence.weights, expected.weights, atol=1e-6)
    assert (weighed.basis, weighed.held_out, weighed.odds) == ("none", None, None), "nothing can be stated of its worth"


def test_without_doubly_labelled_samples_among_the_held_out_it_is_bayes_rule() -> None:
    source, _ = noisy_blobs(0.3)
    method, data, history = trained(source, 220)
    assert data.select is not None
    assert data.report is not None
    unknown = (None, torch.full_like(data.select.label, -1))
    for given in unknown:
        parts = {
            name: replace(part, given=given) for name, part in {"select": data.select, "report": data.report}.items()
        }
        found = weigh(method, replace(data, **parts), history)
        assert found.evidence.weights.tolist() == list(BAYES)
        assert found.basis == "none"


def test_without_doubly_labelled_samples_predictions_stand_in_for_true_labels() -> None:
    source, _ = noisy_blobs(0.3)
    method, data, history = trained(source, None)
    assert data.pairs is None
    history.visits.rows[:100] = 0  # never seen: not counted
    weighed = weigh(method, data, history)
    counts = torch.zeros(4, 4, dtype=torch.float64)
    for sample in range(100, 480):
        counts[int(history.last_predicted.rows[sample]), int(source.label[sample])] += 1
    assert torch.allclose(weighed.evidence.columns, smooth(counts, None).clamp_min(LEAST).log().t())
    assert weighed.evidence.weights.tolist() == list(BAYES)
    assert weighed.basis == "none"


def held_out_of(samples: int, seed: int = 0, sharpness: float = 2.0) -> Labelled:
    probs, given, true = drawn(samples, T4, sharpness, seed)
    return Labelled(probs, given, true, torch.arange(samples))


def test_the_odds_of_a_held_out_sample_come_from_the_others() -> None:
    source, _ = noisy_blobs(0.3)
    data = make_splits(source, 220, seed=1)
    assert data.pairs is not None
    held_out = held_out_of(60)
    weighed = posterior_from(held_out, data, PredictionHistory(source.label, 4), 4)
    assert weighed.odds is not None
    rule = bayes(smooth(count(*data.pairs, 4), None))
    fold = held_out.fold()
    assert fold.bincount().tolist() == [60 // FOLDS] * FOLDS
    for place in range(0, 60, 7):
        rest = held_out.at(fold != fold[place])
        fitted = rule.fitted(rest.probs, rest.given, rest.verified)
        expected = fitted.odds(held_out.probs[place : place + 1], held_out.given[place : place + 1])
        assert float(weighed.odds[place]) == pytest.approx(float(expected), abs=1e-6)


def test_held_out_samples_without_a_given_label_do_not_count() -> None:
    """Reviewed samples, for one: they were chosen because their labels look wrong."""
    source, _ = noisy_blobs(0.3)
    data, history = make_splits(source, 220, seed=1), PredictionHistory(source.label, 4)
    held_out = held_out_of(60)
    unknown = torch.arange(60) % 3 == 0
    mixed = posterior_from(held_out._replace(given=torch.where(unknown, -1, held_out.given)), data, history, 4)
    alone = posterior_from(held_out.at(~unknown).renumbered(), data, history, 4)
    assert mixed.held_out is not None
    assert alone.held_out is not None
    assert mixed.held_out.sample.tolist() == list(range(40))
    assert torch.equal(mixed.held_out.given, alone.held_out.given)
    assert torch.equal(mixed.evidence.weights, alone.evidence.weights)
    for known, basis in ((FEWEST, "pairs"), (FEWEST - 1, "none")):
        given = torch.where(torch.arange(60) < known, held_out.given, -1)
        assert posterior_from(held_out._replace(given=given), data, history, 4).basis == basis


def test_where_no_clean_sample_carries_both_labels_noise_is_put_in() -> None:
    probs, given, _ = drawn(3000, T4, 1.0, 1)
    source = make_source(np.zeros((3000, 1), dtype=np.float32), given.numpy(), classes=["0", "1", "2", "3"])
    data, history = make_splits(source, None), PredictionHistory(source.label, 4)
    history.fold(torch.arange(3000), probs.log().float())
    held_out = held_out_of(200, sharpness=1.0)
    weighed = posterior_from(held_out._replace(given=torch.full((200,), -1)), data, history, 4)
    assert weighed.basis == "injected"
    assert (weighed.evidence.transition() - T4).abs().max() < 0.12
    found = weighed.held_out
    assert found is not None
    assert found.sample.bincount().tolist() == [COPIES] * 200
    assert torch.equal(found.verified, held_out.verified[found.sample])
    wrong = float((found.given != found.verified).double().mean())
    assert wrong == pytest.approx(1 - float(weighed.evidence.transition().diagonal().mean()), abs=0.05)
    fold = found.fold()
    assert all(len(set(fold[found.sample == sample].tolist())) == 1 for sample in range(200)), "no sample in two folds"
    confusion = smooth(count(held_out.probs.argmax(1), held_out.verified, 4), None)
    joint = count(given, probs.half().argmax(1), 4)
    expected = smooth(3000 * deconvolved(joint, confusion), None)
    assert torch.allclose(weighed.evidence.transition(), expected)


def test_all_held_out_parts_count_and_only_they() -> None:
    source, _ = noisy_blobs(0.3)
    method, data, _ = trained(source, 220)
    found = labelled(method, data, (data.select, data.report))
    assert found is not None
    assert data.select is not None
    assert data.report is not None
    assert len(found.given) == len(data.select) + len(data.report)
    places = torch.cat([data.select.index, data.report.index])
    assert torch.equal(found.given, source.label[places])
    assert labelled(method, data, (None, data.select.at(torch.arange(0)))) is None


def test_samples_that_were_never_trained_on_keep_their_label() -> None:
    source, _ = noisy_blobs(0.3, samples=240)
    history = PredictionHistory(source.label, 4)
    wrong = (source.label[:200] + 1) % 4
    history.fold(torch.arange(200), (0.01 + 0.96 * torch.nn.functional.one_hot(wrong, 4).float()).log())
    data = make_splits(source, None)
    method = CrossEntropy(Task(source.label, 4, small_network, 2, 32))
    found = bayes(T4).posterior(history.said(torch.arange(240)), source.label)
    judgement = judged(source, data, history, bayes(T4))
    suggested = suggestions(source, data, history, judgement)
    assert torch.equal(suggested[200:].long(), source.label[200:])
    assert torch.equal(suggested[:200].long(), wrong)
    labels = label_frame(source, data, method, history, judgement)
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
    history = PredictionHistory(source.label, 4)
    history.fold(torch.arange(2), torch.tensor([[0.3, 0.6, 0.05, 0.05], [0.05, 0.05, 0.85, 0.05]]).log())
    data = make_splits(source, None)
    method = CrossEntropy(Task(source.label, 4, small_network, 2))
    labels = label_frame(source, data, method, history, judged(source, data, history, bayes(T4)))
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

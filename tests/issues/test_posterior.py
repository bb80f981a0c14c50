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
from mslg.issues.evidence import FOLDS, Evidence, Predictions, VerifiedSamples
from mslg.issues.from_training import evidence_of, training_predictions, verified_samples
from mslg.issues.label_rows import label_frame
from mslg.issues.posterior import (
    BAYES,
    COPIES,
    FEWEST,
    LEAST,
    PRIOR_STRENGTH,
    FittedPosterior,
    Posterior,
    bayes_rule,
    fit_posterior,
    log_odds_wrong,
)
from mslg.issues.ranked_list import LabelIssues
from mslg.methods.cross_entropy import CrossEntropy
from mslg.noise.smoothed_counts import SmoothedCounts
from mslg.noise.transition_matrix import count, deconvolved, smooth
from mslg.training.loop import Position, train
from mslg.training.method import Task
from mslg.training.prediction_history import PredictionHistory
from tests.support.blobs import blobs, small_network
from tests.support.slow_matrix import slow_columns, slowly_smoothed

T4 = torch.full((4, 4), 0.1, dtype=torch.float64).fill_diagonal_(0.7)
LOPSIDED = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], dtype=torch.float64)


def drawn(samples: int, transition: Tensor, sharpness: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Predictions made `sharpness` times as confident as they deserve, given labels and true ones."""
    random = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(samples, len(transition), generator=random, dtype=torch.float64)
    true = torch.multinomial(logits.softmax(1), 1, generator=random).squeeze(1)
    given = torch.multinomial(transition[true], 1, generator=random).squeeze(1)
    return (sharpness * logits).softmax(1), given, true


def log_likelihood(posterior: Posterior, probs: Tensor, given: Tensor, true: Tensor) -> float:
    return float(posterior(probs, given).log().gather(1, true.unsqueeze(1)).mean())


def test_the_posterior_equals_a_slow_one() -> None:
    probs, given, _ = drawn(20, LOPSIDED, 1.0, 0)
    weights, centre = [0.8, 1.3, 0.4, -0.2, 0.5], [-1.1, -0.3]
    columns = bayes_rule(LOPSIDED).log_columns
    posterior = Posterior(columns, *(torch.tensor(values, dtype=torch.float64) for values in (weights, centre)))
    a, b, c, d, e = weights
    found = posterior(probs, given)
    for row, label, result in zip(probs.tolist(), given.tolist(), found.tolist(), strict=True):
        mass = []
        for k in range(3):
            m = row[k] ** a * max(float(LOPSIDED[k, label]), LEAST) ** b
            if k == label:
                m *= math.exp(c + d * (math.log(row[label]) - centre[0]) + e * (math.log(max(row)) - centre[1]))
            mass.append(m)
        assert result == pytest.approx([m / sum(mass) for m in mass], rel=1e-9)


def test_unfitted_weights_are_bayes_rule() -> None:
    probs, given, _ = drawn(20, T4, 1.0, 1)
    found = bayes_rule(T4)(probs, given)
    for row, label, result in zip(probs.tolist(), given.tolist(), found.tolist(), strict=True):
        mass = [row[k] * float(T4[k, label]) for k in range(4)]
        assert result == pytest.approx([m / sum(mass) for m in mass], rel=1e-9)
    assert bayes_rule(T4).weights.tolist() == list(BAYES)


def test_a_probability_of_zero_is_only_very_unlikely() -> None:
    sure = torch.tensor([[1.0, 0.0, 0.0]])
    found = bayes_rule(LOPSIDED)(sure, torch.tensor([2]))  # which class 0 is never given
    assert torch.isfinite(found).all()
    assert float(found.sum()) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(5))
def test_fitted_weights_explain_new_samples_better_when_predictions_are_too_sure(seed: int) -> None:
    plain = bayes_rule(T4)
    fitted = plain.fit(verified(200, sharpness=4.0, seed=seed))
    new = drawn(2000, T4, 4.0, 100 + seed)
    assert log_likelihood(fitted, *new) > log_likelihood(plain, *new) + 0.1
    assert float(fitted.weights[0]) < 0.7, "the prediction counts less"


@pytest.mark.parametrize("seed", range(5))
def test_fitted_weights_stay_near_bayes_rule_when_predictions_are_honest(seed: int) -> None:
    plain = bayes_rule(T4)
    fitted = plain.fit(verified(200, sharpness=1.0, seed=seed))
    new = drawn(2000, T4, 1.0, 100 + seed)
    assert log_likelihood(fitted, *new) > log_likelihood(plain, *new) - 0.03
    assert (fitted.weights - plain.weights).abs().max() < 0.6


def test_the_fit_is_the_best_there_is() -> None:
    probs, given, true = drawn(150, T4, 3.0, 0)
    fitted = bayes_rule(T4).fit(verified(150, sharpness=3.0))

    def penalised(weights: Tensor) -> float:
        loss = -len(true) * log_likelihood(replace(fitted, weights=weights), probs, given, true)
        return loss + PRIOR_STRENGTH / 2 * float(((weights - torch.tensor(BAYES).double()) ** 2).sum())

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


def by_columns(log_columns: Tensor) -> Posterior:
    """Bayes' rule with these log T[·, given]."""
    return replace(bayes_rule(torch.eye(len(log_columns))), log_columns=log_columns)


def verified(samples: int, seed: int = 0, sharpness: float = 2.0) -> VerifiedSamples:
    return VerifiedSamples(*drawn(samples, T4, sharpness, seed), torch.arange(samples))


def fitted(method: CrossEntropy, data: Splits, history: PredictionHistory) -> FittedPosterior:
    method.eval()
    return fit_posterior(training_predictions(method, data, history), evidence_of(method, data))


def ranked(method: CrossEntropy, data: Splits, history: PredictionHistory, posterior: Posterior) -> LabelIssues:
    """By this posterior, whose worth is unknown."""
    predictions, given = training_predictions(method, data, history), data.train.label
    probs, known = history.said(data.train.index), history.seen(data.train.index)
    odds = torch.where(known, posterior.log_odds(probs, given), torch.nan)
    likeliest = torch.where(known, posterior(probs, given).argmax(1), given).int()
    rate = ErrorRate(len(given), "none", 0, "there are no clean samples")
    two = likeliest, likeliest, torch.zeros(len(given), 2)  # the runner-up does not matter here
    return LabelIssues(predictions, Evidence(), posterior, rate, odds, *two)


def test_the_odds_are_those_of_the_posterior() -> None:
    probs, given, _ = drawn(20, T4, 1.0, 0)
    posterior = bayes_rule(T4)
    right = posterior(probs, given).gather(1, given.unsqueeze(1)).squeeze(1)
    for odds, part in zip(posterior.log_odds(probs, given).tolist(), right.tolist(), strict=True):
        assert odds == pytest.approx(math.log((1 - part) / part))
    assert torch.isfinite(log_odds_wrong(torch.tensor([0.0, 1.0]))).all(), "nothing is quite certain"


def test_the_matrix_is_the_one_that_it_was_made_with() -> None:
    assert torch.allclose(bayes_rule(LOPSIDED).transition(), LOPSIDED.clamp_min(LEAST))


def test_predictions_rounded_to_nothing_still_rank_in_order() -> None:
    """Half precision knows no number between 0 and 6e-8: what is below stands for very unlikely, not for impossible."""
    probs = torch.tensor([[1.0, 3e-8, 0, 0], [0.9, 0.1, 0, 0], [1e-8, 1.0, 0, 0]]).half()
    odds = bayes_rule(T4).log_odds(probs, torch.tensor([0, 0, 0]))
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
    weighed = fitted(method, data, history)
    assert weighed.basis == "pairs"
    found = weighed.posterior
    plain = by_columns(slow_columns(count(*data.pairs, 4)))
    assert torch.allclose(found.log_columns, plain.log_columns)
    batches = [*data.in_order(data.select), *data.in_order(data.report)]
    with torch.no_grad():
        probs = torch.cat([method.predict(batch.inputs).exp() for batch in batches])
    given = torch.cat([data.select.given, data.report.given])
    labels = torch.cat([data.select.label, data.report.label])
    expected = plain.fit(VerifiedSamples(probs, given, labels, torch.arange(len(given))))
    assert torch.allclose(found.weights, expected.weights, atol=1e-6)
    assert (found.weights - plain.weights).abs().max() > 0.01
    assert found.weights.requires_grad is False


def test_without_a_held_out_part_the_steering_samples_must_do() -> None:
    source, _ = noisy_blobs(0.3)
    method, data, history = trained(source, 220, hold_out=False)
    assert data.select is None
    assert data.pairs is not None
    weighed = fitted(method, data, history)
    steering = verified_samples(method, data, (data.clean,))
    assert steering is not None
    expected = by_columns(slow_columns(count(*data.pairs, 4))).fit(steering)
    assert torch.allclose(weighed.posterior.weights, expected.weights, atol=1e-6)
    assert (weighed.basis, weighed.held_out, weighed.log_odds) == ("none", None, None), "its worth is unknown"


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
        found = fitted(method, replace(data, **parts), history)
        assert found.posterior.weights.tolist() == list(BAYES)
        assert found.basis == "none"


def test_without_doubly_labelled_samples_predictions_stand_in_for_true_labels() -> None:
    source, _ = noisy_blobs(0.3)
    method, data, history = trained(source, None)
    assert data.pairs is None
    history.visits.rows[:100] = 0  # never seen: not counted
    weighed = fitted(method, data, history)
    counts = torch.zeros(4, 4, dtype=torch.float64)
    for sample in range(100, 480):
        counts[int(history.last_predicted.rows[sample]), int(source.label[sample])] += 1
    agreement = float(counts.diag().sum() / counts.sum())
    expected = slowly_smoothed(counts).clamp_min(LEAST).log().t()
    part = 0.5 * min(1.0, max(0.0, (0.8 - agreement) / 0.25))
    assert 0 < part < 0.5
    for row in range(4):  # a part of what is counted, the rest of a matrix that knows no classes
        for column in range(4):
            alike = agreement if row == column else (1 - agreement) / 3
            expected[row, column] = part * expected[row, column] + (1 - part) * math.log(alike)
    assert torch.allclose(weighed.posterior.log_columns, expected)
    assert weighed.posterior.weights.tolist() == list(BAYES)
    assert weighed.basis == "none"


def test_few_pairs_that_lack_a_class_do_not_replace_what_predictions_say() -> None:
    """20 random samples of ten classes nearly always lack one."""
    transition = torch.full((8, 8), 0.05, dtype=torch.float64).fill_diagonal_(0.65)
    probs, given, _ = drawn(3000, transition, 1.0, 1)
    names = [str(number) for number in range(8)]
    predictions = Predictions(given, names, probs.__getitem__, lambda positions: [str(i) for i in positions])
    pairs = VerifiedSamples(*drawn(60, transition, 2.0, 0), torch.arange(60))
    pairs = pairs.at(pairs.verified != 3)
    alone = bayes_rule(SmoothedCounts.of(given, probs.argmax(1), 8)).log_columns
    for many, expected in ((FEWEST, True), (39, True), (40, False)):
        some = pairs.at(torch.arange(many))
        for evidence in (Evidence(some, cross_fitted=True), Evidence(some, (some.given, some.verified))):
            found = fit_posterior(predictions, evidence)
            assert found.basis == "pairs"
            assert torch.equal(found.posterior.log_columns, alone) == expected
        unknown = some._replace(given=torch.full_like(some.given, -1))
        assert fit_posterior(predictions, Evidence(unknown)).basis == ("none" if expected else "injected")


def of_arrays(given: Tensor, probs: Tensor) -> Predictions:
    """The predictions of some other model."""
    return Predictions(given, ["0", "1", "2", "3"], probs.__getitem__, lambda positions: [str(i) for i in positions])


def test_the_odds_of_a_held_out_sample_come_from_the_others() -> None:
    probs, given, true = drawn(220, T4, 1.0, 1)
    held_out, pairs = verified(60), (given[:132], true[:132])
    weighed = fit_posterior(of_arrays(given, probs), Evidence(held_out, pairs))
    assert weighed.log_odds is not None
    rule = replace(by_columns(slow_columns(count(*pairs, 4))), floor=weighed.posterior.floor)
    fold = held_out.folds()
    assert fold.bincount().tolist() == [60 // FOLDS] * FOLDS
    for place in range(0, 60, 7):
        one = held_out.at(torch.tensor([place]))
        expected = rule.fit(held_out.at(fold != fold[place])).log_odds(one.probs, one.given)
        assert float(weighed.log_odds[place]) == pytest.approx(float(expected), abs=1e-6)


def test_held_out_samples_without_a_given_label_do_not_count() -> None:
    """Reviewed samples, for one: they were chosen because their labels look wrong."""
    probs, given, true = drawn(220, T4, 1.0, 1)
    held_out, predictions, pairs = verified(60), of_arrays(given, probs), (given[:132], true[:132])
    unknown = torch.arange(60) % 3 == 0
    some = held_out._replace(given=torch.where(unknown, -1, held_out.given))
    mixed = fit_posterior(predictions, Evidence(some, pairs))
    alone = fit_posterior(predictions, Evidence(held_out.at(~unknown), pairs))
    assert mixed.held_out is not None
    assert alone.held_out is not None
    assert mixed.held_out.sample.tolist() == list(range(40))
    assert torch.equal(mixed.held_out.given, alone.held_out.given)
    assert torch.equal(mixed.posterior.weights, alone.posterior.weights)
    for known, basis in ((FEWEST, "pairs"), (FEWEST - 1, "none")):
        some = held_out._replace(given=torch.where(torch.arange(60) < known, held_out.given, -1))
        assert fit_posterior(predictions, Evidence(some, pairs)).basis == basis


def test_where_no_clean_sample_carries_both_labels_noise_is_put_in() -> None:
    probs, given, _ = drawn(3000, T4, 1.0, 1)
    held_out = verified(200, sharpness=1.0)
    unknown = held_out._replace(given=torch.full((200,), -1))
    weighed = fit_posterior(of_arrays(given, probs.half()), Evidence(unknown))
    assert weighed.basis == "injected"
    assert (weighed.posterior.transition() - T4).abs().max() < 0.12
    found = weighed.held_out
    assert found is not None
    assert found.sample.bincount().tolist() == [COPIES] * 200
    assert torch.equal(found.verified, held_out.verified[found.sample])
    wrong = float((found.given != found.verified).double().mean())
    assert wrong == pytest.approx(1 - float(weighed.posterior.transition().diagonal().mean()), abs=0.05)
    fold = found.folds()
    assert all(len(set(fold[found.sample == sample].tolist())) == 1 for sample in range(200)), "no sample in two folds"
    confusion = smooth(count(held_out.probs.argmax(1), held_out.verified, 4), None)
    joint = count(given, probs.half().argmax(1), 4)
    expected = smooth(3000 * deconvolved(joint, confusion), None)
    assert torch.allclose(weighed.posterior.transition(), expected)


def test_after_training_the_matrix_is_counted_by_predictions_and_not_deconvolved() -> None:
    probs, given, _ = drawn(3000, T4, 1.0, 1)
    trained_on = replace(of_arrays(given, probs), predicted_in_training=probs.argmax(1))
    unknown = verified(100, sharpness=1.0)._replace(given=torch.full((100,), -1))
    found, alone = fit_posterior(trained_on, Evidence(unknown)), fit_posterior(trained_on, Evidence())
    assert (found.basis, alone.basis) == ("injected", "none")
    assert torch.equal(found.posterior.transition(), alone.posterior.transition())


def test_all_held_out_parts_count_and_only_they() -> None:
    source, _ = noisy_blobs(0.3)
    method, data, _ = trained(source, 220)
    found = verified_samples(method, data, (data.select, data.report))
    assert found is not None
    assert data.select is not None
    assert data.report is not None
    assert len(found.given) == len(data.select) + len(data.report)
    places = torch.cat([data.select.index, data.report.index])
    assert torch.equal(found.given, source.label[places])
    assert verified_samples(method, data, (None, data.select.at(torch.arange(0)))) is None


def test_samples_that_were_never_trained_on_keep_their_label() -> None:
    source, _ = noisy_blobs(0.3, samples=240)
    history = PredictionHistory(source.label, 4)
    wrong = (source.label[:200] + 1) % 4
    history.fold(torch.arange(200), (0.01 + 0.96 * torch.nn.functional.one_hot(wrong, 4).float()).log())
    data = make_splits(source, None)
    method = CrossEntropy(Task(source.label, 4, small_network, 2, 32))
    found = bayes_rule(T4)(history.said(torch.arange(240)), source.label)
    issues = ranked(method, data, history, bayes_rule(T4))
    assert torch.equal(issues.suggested[200:].long(), source.label[200:])
    assert torch.equal(issues.suggested[:200].long(), wrong)
    labels = label_frame(issues)
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
    labels = label_frame(ranked(method, data, history, bayes_rule(T4)))
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

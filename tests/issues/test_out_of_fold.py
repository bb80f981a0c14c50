"""Evidence from clean samples that were all trained on, each predicted by networks that have not seen it."""

from __future__ import annotations

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
from mslg.issues.error_rate import NO_CLEAN_SAMPLES, NOT_HELD_OUT, TOO_FEW_PAIRS, ErrorRate, estimate_error_rate
from mslg.issues.evidence import FOLDS, Evidence, Predictions, VerifiedSamples
from mslg.issues.from_training import evidence_of, missing_clean_samples, training_predictions
from mslg.issues.posterior import FEWEST, fit_posterior
from mslg.issues.ranked_list import rank_labels
from mslg.issues.wrong_share import share_from_pairs
from mslg.methods.cross_entropy import CrossEntropy
from mslg.training.method import Task
from mslg.training.prediction_history import PredictionHistory
from tests.support.blobs import blobs, small_network
from tests.support.slow_matrix import slow_columns

NOISE = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.8, 0.2], [0.3, 0.1, 0.6]], dtype=torch.float64)


def drawn(count: int, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Predictions, given labels and true ones."""
    logits = 2.5 * torch.randn(count, len(NOISE), generator=random, dtype=torch.float64)
    true = torch.multinomial(logits.softmax(1), 1, generator=random).squeeze(1)
    given = torch.multinomial(NOISE[true], 1, generator=random).squeeze(1)
    return logits.softmax(1), given, true


def small_world(seed: int, clean: int = 60) -> tuple[Predictions, Evidence, Tensor]:
    """Training samples, all clean samples as evidence, and which training labels are wrong."""
    random = torch.Generator().manual_seed(seed)
    probs, given, true = drawn(800, random)
    predictions = Predictions(given, "abc", probs.__getitem__, lambda positions: [])
    chances, labels, verified = drawn(clean, random)
    held_out = VerifiedSamples(chances, labels, verified, torch.arange(clean))
    return predictions, Evidence(held_out, cross_fitted=True, seed=seed), given != true


def samples_of(evidence: Evidence) -> VerifiedSamples:
    assert evidence.held_out is not None
    return evidence.held_out


def estimated(predictions: Predictions, evidence: Evidence) -> ErrorRate:
    fitted = fit_posterior(predictions, evidence)
    everything = torch.arange(len(predictions))
    odds = fitted.posterior.log_odds(predictions.probs(everything), predictions.given)
    return estimate_error_rate(fitted, odds, predictions, evidence)


def test_columns_are_counted_without_the_own_fold() -> None:
    """Against a slow second version: one matrix for each sample, counted in plain loops."""
    predictions, evidence, _ = small_world(0, clean=30)
    found = fit_posterior(predictions, evidence).held_out
    assert found is not None
    assert found.columns is not None
    _, given, verified, _, _ = samples_of(evidence)
    fold = found.folds().tolist()
    assert set(fold) == set(range(FOLDS))
    for place in range(len(given)):
        counts = torch.zeros(3, 3, dtype=torch.float64)
        for other in range(len(given)):
            if fold[other] != fold[place]:
                counts[verified[other], given[other]] += 1
        column = slow_columns(counts)[given[place]]
        assert torch.allclose(found.columns[place], column)


def test_the_matrix_of_the_training_samples_is_counted_on_all() -> None:
    predictions, evidence, _ = small_world(1)
    counts = torch.zeros(3, 3, dtype=torch.float64)
    for label, true in zip(samples_of(evidence).given, samples_of(evidence).verified, strict=True):
        counts[true, label] += 1
    fitted = fit_posterior(predictions, evidence)
    assert fitted.basis == "pairs"
    assert torch.allclose(fitted.posterior.log_columns, slow_columns(counts))


def test_a_list_by_more_networks_than_its_clean_samples_may_be_better_than_these_show() -> None:
    """Of a run, not of another model's probabilities, which are the same for both."""
    predictions, evidence, _ = small_world(1)
    plain, steeper = (
        rank_labels(predictions, replace(evidence, by_folds=each)).error_rate_summary() for each in (False, True)
    )
    for before, after in zip(plain["precision"][:3], steeper["precision"][:3], strict=True):
        assert before["estimate"] < after["estimate"]
    assert plain["share"] == steeper["share"]


def test_the_column_of_a_clean_sample_does_not_depend_on_its_own_verified_label() -> None:
    predictions, evidence, _ = small_world(2)
    samples, place = samples_of(evidence), 7
    verified = samples.verified.clone()
    verified[place] = (verified[place] + 1) % 3
    changed = replace(evidence, held_out=samples._replace(verified=verified))
    before, after = (fit_posterior(predictions, each).held_out for each in (evidence, changed))
    assert before is not None
    assert after is not None
    assert before.columns is not None
    assert after.columns is not None
    own = samples.folds() == samples.folds()[place]
    assert torch.equal(before.columns[own], after.columns[own])
    assert not torch.allclose(before.columns[~own], after.columns[~own])


def test_no_clean_sample_counts_twice_for_the_share_of_wrong_labels() -> None:
    predictions, evidence, _ = small_world(3)
    samples = samples_of(evidence)

    def share(about: Evidence) -> Tensor:
        random = torch.Generator().manual_seed(0)
        weight = torch.empty(4000, len(samples.given), dtype=torch.float64).exponential_(generator=random)
        return share_from_pairs(samples, predictions, about, weight, random)

    once = share(evidence)
    assert torch.equal(once, share(replace(evidence, pairs=(samples.given, samples.verified))))
    wrong = float((samples.given != samples.verified).double().mean())
    assert float(once.mean()) == pytest.approx(wrong, abs=0.02)
    # As wide as so many samples make it: counted twice, it would be narrower by a factor of √2.
    assert float(once.std()) == pytest.approx((wrong * (1 - wrong) / len(samples.given)) ** 0.5, rel=0.1)


def test_nine_of_ten_statements_from_sixty_samples_hold() -> None:
    held = 0
    for seed in range(20):
        predictions, evidence, wrong = small_world(seed)
        found = estimated(predictions, evidence)
        assert (found.basis, found.held_out, found.why) == ("pairs", 60, None)
        assert found.calibration is not None
        _, low, high = found.calibration.wrong_share(len(wrong))
        held += low <= float(wrong.double().mean()) <= high
    assert held >= 15  # 18 are expected; fewer than 15 would be a chance of 1 %


def test_too_few_samples_with_both_labels_give_no_statement() -> None:
    predictions, evidence, _ = small_world(0)
    given = samples_of(evidence).given.clone()
    given[FEWEST - 1 :] = -1
    few = replace(evidence, held_out=samples_of(evidence)._replace(given=given))
    assert estimated(predictions, few).why == TOO_FEW_PAIRS
    assert estimated(predictions, Evidence()).why == NO_CLEAN_SAMPLES


class Elsewhere(CrossEntropy):
    """Knows what networks that have not seen the labels predict."""

    log_probs_unseen: Tensor
    log_probs_clean: Tensor | None = None

    def unseen(self, index: Tensor) -> Tensor | None:
        return self.log_probs_unseen[index]

    def unseen_clean(self, clean: Any) -> Tensor | None:
        return None if self.log_probs_clean is None else self.log_probs_clean[: len(clean)]


def noisy(samples: int = 240) -> Source:
    data = blobs(samples=samples, rate=0.3)
    return make_source(data.x, data.given, true_labels=data.true, verified_labels=data.true)


def elsewhere(clean: int) -> tuple[Elsewhere, Splits, PredictionHistory]:
    source = noisy()
    data = make_splits(source, clean, batch_size=32)
    method = Elsewhere(Task(source.label, 4, small_network, 2, 32, pairs=data.pairs))
    method.log_probs_unseen = torch.randn(240, 4, generator=torch.Generator().manual_seed(0)).log_softmax(1)
    history = PredictionHistory(source.label, 4)
    final = history.begin_final()
    everything = torch.arange(240)
    final[everything] = torch.randn(240, 4, generator=torch.Generator().manual_seed(1)).softmax(1)
    return method, data, history


def test_the_list_weighs_the_geometric_mean_of_both_predictions() -> None:
    method, data, history = elsewhere(40)
    positions = torch.tensor([3, 0, 11])
    index = data.train.index[positions]
    found = training_predictions(method, data, history).probs(positions)
    finished, unseen = history.said(index).double().numpy(), method.log_probs_unseen[index].double().exp().numpy()
    mean = np.sqrt((0.99 * finished + 0.01 / 4) * (0.99 * unseen + 0.01 / 4))
    assert np.allclose(found.numpy(), mean / mean.sum(1, keepdims=True), atol=1e-5)


def test_an_impossible_class_is_only_very_unlikely() -> None:
    method, data, history = elsewhere(40)
    assert history.final is not None
    history.final[torch.arange(240)] = torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(240, 1)
    found = training_predictions(method, data, history).probs(torch.arange(len(data.train.index)))
    assert bool(torch.isfinite(found).all())
    assert float(found.min()) > 0


def test_clean_samples_predicted_out_of_fold_are_all_evidence() -> None:
    method, data, _ = elsewhere(60)
    assert evidence_of(method, data).held_out is None
    method.log_probs_clean = torch.randn(60, 4, generator=torch.Generator().manual_seed(2)).log_softmax(1)
    evidence = evidence_of(method, data)
    assert data.clean is not None
    assert evidence.cross_fitted
    assert evidence.pairs is None
    assert samples_of(evidence).verified.tolist() == data.clean.label.tolist()
    assert torch.allclose(samples_of(evidence).probs, method.log_probs_clean.exp())


def test_what_is_missing_depends_on_the_method() -> None:
    some, few, none = (make_splits(noisy(), clean, batch_size=32) for clean in (60, FEWEST - 1, None))
    assert missing_clean_samples(some, cross_fits=True) is None
    assert missing_clean_samples(some, cross_fits=False) == NOT_HELD_OUT
    assert missing_clean_samples(few, cross_fits=True) == TOO_FEW_PAIRS
    assert missing_clean_samples(none, cross_fits=True) == NO_CLEAN_SAMPLES


def test_sixty_clean_samples_give_an_error_rate() -> None:
    source = noisy(600)
    told: dict[str, Any] = {"epochs": 6, "batch_size": 32, "progress": False}
    result = mslg.fit(small_network, source, 60, fdr=0.3, **told)
    stated = result.summary["label_errors"]
    assert (stated["basis"], stated["samples"], stated["why"], stated["fdr"]) == ("pairs", 60, None, 0.3)
    assert stated["share"]["low"] <= 0.3 <= stated["share"]["high"]
    assert stated["flagged"]["depth"] == int(result.labels["is_label_issue"].sum()) > 0
    with pytest.raises(ValueError, match=r"fdr = 0\.3 cannot be kept: no clean samples are held out"):
        mslg.fit(small_network, source, 60, fdr=0.3, method="mslg", **told)


def test_what_a_method_knows_of_class_shares_is_part_of_the_evidence() -> None:
    method, data, _ = elsewhere(40)
    method.log_probs_clean = method.log_probs_unseen
    assert evidence_of(method, data).class_shift is None
    method.class_shift = lambda: torch.arange(4.0)  # type: ignore[method-assign]
    shift = evidence_of(method, data).class_shift
    assert shift is not None
    assert shift.tolist() == [0, 1, 2, 3]

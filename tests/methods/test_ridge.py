"""The ridge regression of cross-fitted labels: out of fold, against loops, better than the labels it is fitted to."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mslg.data.batch import Batch
from mslg.methods.cross_fitted import kernel_features, ridge, ridge_problem
from mslg.methods.cross_fitted.fold_networks import stratified_folds
from mslg.methods.cross_fitted.kernel_features import Kernel, features_of, triangular_product
from mslg.methods.cross_fitted.ridge import Ridge, RidgeSamples, are_vectors, as_rows
from mslg.methods.cross_fitted.ridge_problem import Outside, Problem, deconvolved, leverage_of, without_each

CLASSES, FOLDS = 3, 4


@pytest.fixture(autouse=True)
def _double(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "PRECISION", torch.float64)


def noisy(samples: int = 600, wrong: float = 0.5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs around the centres of their classes, true and given labels, and the transition matrix."""
    random = torch.Generator().manual_seed(0)
    true = torch.randint(CLASSES, (samples,), generator=random)
    centre = 1.5 * torch.randn(CLASSES, 6, generator=random, dtype=torch.float64)
    inputs = centre[true] + torch.randn(samples, 6, generator=random, dtype=torch.float64)
    moved = torch.rand(samples, generator=random) < wrong
    given = torch.where(moved, (true + 1 + torch.randint(2, (samples,), generator=random)) % CLASSES, true)
    transition = torch.full((CLASSES, CLASSES), wrong / 2, dtype=torch.float64)
    return inputs, true, given, transition.fill_diagonal_(1 - wrong)


def fitted(inputs: Tensor, given: Tensor, transition: Tensor) -> tuple[Ridge, Tensor]:
    fold = stratified_folds(torch.zeros_like(given), FOLDS, seed=1)
    samples = RidgeSamples(given, fold, len(given))
    for rows in torch.arange(len(given)).split(100):
        samples.add(Batch(rows, inputs[rows], given[rows]))
    return samples.fit(transition), fold


def test_it_predicts_true_labels_better_than_the_given_ones_are() -> None:
    inputs, true, given, transition = noisy()
    made, fold = fitted(inputs, given, transition)
    right = (made.predict(inputs, fold).argmax(1) == true).double().mean()
    assert right > 0.85 > 0.55 > (given == true).double().mean()


def test_no_sample_is_predicted_by_its_own_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "PENALTIES", (1e-2,))  # how strongly and for how long is decided by all labels
    monkeypatch.setattr(ridge_problem, "LEAST_ROUNDS", ridge_problem.ROUNDS)
    monkeypatch.setattr(ridge, "NARROW", 0)
    inputs, _, given, transition = noisy()
    made, fold = fitted(inputs, given, transition)
    other = torch.where(fold == 2, (given + 1) % CLASSES, given)
    again, _ = fitted(inputs, other, transition)
    same = [
        torch.equal(each.predict(inputs, fold)[fold == 2], made.predict(inputs, fold)[fold == 2]) for each in [again]
    ]
    assert same == [True]
    assert not torch.equal(again.predict(inputs, fold)[fold == 1], made.predict(inputs, fold)[fold == 1])


def test_the_first_round_is_the_ridge_regression_of_given_labels() -> None:
    inputs, _, given, transition = noisy(80)
    fold = torch.arange(80) // 20
    features = features_of(inputs, None)
    made = Problem(features, given, fold, FOLDS, torch.ones(80, dtype=torch.bool))
    solutions, offsets = next(made.rounds(FOLDS, 1e-2, 1, transition))
    solution, offset = solutions[1], offsets[1]
    others = [number for number in range(80) if fold[number] != 1]
    shares = [sum(int(given[number] == c) for number in others) / len(others) for c in range(CLASSES)]
    squares = sum(torch.outer(features[number], features[number]) for number in others)
    assert isinstance(squares, Tensor)
    squares += 1e-2 / 10 * squares.trace() * torch.eye(7, dtype=torch.float64)
    for c in range(CLASSES):
        product = sum(features[number] * (float(given[number] == c) - shares[c]) for number in others)
        assert isinstance(product, Tensor)
        slow = torch.linalg.solve(squares, product)
        sharpness = offset[c] / shares[c]
        assert torch.allclose(solution[:, c], sharpness * slow, rtol=1e-9, atol=1e-12)


def test_labels_that_stay_are_fitted_like_those_that_are_corrected_by_hardly_anything() -> None:
    """What is left out where the matrix is the unit one changes nothing."""
    inputs, _, given, _ = noisy(120)
    fold, unit = torch.arange(120) // 30, torch.eye(CLASSES, dtype=torch.float64)
    nearly = (1 - 1e-13) * unit + 1e-13 / CLASSES
    made = Problem(features_of(inputs, None), given, fold, FOLDS, torch.arange(120) % 2 == 0)
    for one, other in zip(made.rounds(FOLDS, 1e-2, 3, unit), made.rounds(FOLDS, 1e-2, 3, nearly), strict=True):
        assert all(torch.allclose(*pair, rtol=1e-6, atol=1e-8) for pair in zip(one, other, strict=True))
    every = made._factor(FOLDS, 1e-2, whole=True)[1]
    some = [leverage[outside.sharpened] for leverage, outside in zip(every, made._outside, strict=True)]
    few = made._factor(FOLDS, 1e-2, whole=False)[1]
    assert all(torch.allclose(*pair) for pair in zip(few, some, strict=True))
    assert made.mean_leverage(1e-2) == pytest.approx(float(torch.cat(some).mean()))


def test_the_samples_outside_a_fold_are_all_others() -> None:
    label, sharpened = torch.arange(10), torch.arange(10) % 3 == 0
    for start, stop in ((0, 4), (4, 7), (7, 10), (0, 0), (0, 10)):
        outside = Outside.of(slice(start, stop), label, sharpened)
        others = [number for number in range(10) if not start <= number < stop]
        assert outside.label.tolist() == others
        assert outside.sharpened_at.tolist() == [number for number in others if number % 3 == 0]
        assert outside.label[outside.sharpened].tolist() == outside.sharpened_at.tolist()


def test_corrected_labels_are_those_of_loops_over_the_samples() -> None:
    """Two rounds, by solutions that are fitted once more without each sample."""
    inputs, _, given, transition = noisy(40)
    fold, unit = torch.arange(40) // 10, torch.eye(CLASSES, dtype=torch.float64)
    features = features_of(inputs, None)
    made = Problem(features, given, fold, FOLDS, torch.ones(40, dtype=torch.bool))
    first, second = (each for each, _ in zip(made.rounds(FOLDS, 1e-2, 2, transition), range(2), strict=False))
    for number in range(FOLDS):
        others = [place for place in range(40) if fold[place] != number]
        squares = features[others].T @ features[others]
        squares = squares + 1e-2 / 10 * squares.trace() * torch.eye(7, dtype=torch.float64)
        shares = unit[given[others]].mean(0)
        sharpness = first[1][number][0] / shares[0]
        targets = []
        for place in others:
            rest = [other for other in others if other != place]
            kept = features[rest].T @ (unit[given[rest]] - shares)
            without = torch.linalg.solve(squares - torch.outer(features[place], features[place]), kept)
            probs = (sharpness * (features[place] @ without + shares)).softmax(0)
            true = deconvolved(probs[:, None], transition)[:, 0]
            targets.append(true * transition[:, given[place]] / (true @ transition[:, given[place]]))
        target = torch.stack(targets)
        shares = target.mean(0)
        slow = torch.linalg.solve(squares, features[others].T @ (target - shares))
        sharpness = second[1][number][0] / shares[0]
        assert torch.allclose(second[0][number], sharpness * slow, rtol=1e-6, atol=1e-9)


def test_probabilities_of_given_labels_are_deconvolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge_problem, "DECONVOLVED", 2000)
    transition = torch.tensor([[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]], dtype=torch.float64)
    true = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]], dtype=torch.float64)
    assert torch.allclose(deconvolved((true @ transition).T, transition).T, true, atol=1e-3)


def test_features_of_a_kernel_have_its_products_between_landmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_features, "JITTER", 0.0)
    rows = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    features = features_of(rows, Kernel.of(rows))
    for one, first in zip(rows, features, strict=True):
        for other, second in zip(rows, features, strict=True):
            distance = sum(float(a - b) ** 2 for a, b in zip(one, other, strict=True))
            assert float(first @ second) == pytest.approx(math.exp(-distance / (2 * kernel_features.SQUARED_WIDTH * 4)))


def test_samples_that_were_fitted_are_predicted_as_others_are() -> None:
    inputs, _, given, transition = noisy()
    fold = stratified_folds(torch.zeros_like(given), FOLDS, seed=1)
    samples = RidgeSamples(given, fold, len(given))
    samples.add(Batch(torch.arange(len(given)), inputs, given))
    made = samples.fit(transition)
    index, log_probs = samples.predicted()[0]
    assert torch.equal(index.sort().values, torch.arange(len(given)))
    assert torch.allclose(log_probs, made.predict(inputs[index], fold[index]), atol=1e-9)


def test_a_product_with_a_triangular_matrix_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_features, "BLOCK", 3)
    random = torch.Generator().manual_seed(0)
    rows, lower = (torch.randn(count, 8, dtype=torch.float64, generator=random) for count in (5, 8))
    lower = lower.tril()
    product = torch.cat([part for _, part in triangular_product(rows, lower)], 1)
    assert torch.allclose(product, rows @ lower.T)


def test_scores_are_of_solutions_without_the_sample() -> None:
    inputs, _, given, _ = noisy(60)
    features, target = features_of(inputs, None), torch.eye(CLASSES, dtype=torch.float64)[given] - 0.3
    penalty = 0.5 * torch.eye(7, dtype=torch.float64)
    squares = features.T @ features + penalty
    leverage = leverage_of(features, torch.linalg.cholesky(squares).inverse())[:, None]
    scores = without_each(features @ torch.linalg.solve(squares, features.T @ target), target, leverage)
    for place in range(0, 60, 7):
        rest = [number for number in range(60) if number != place]
        kept = features[rest]
        slow = torch.linalg.solve(kept.T @ kept + penalty, kept.T @ target[rest])
        assert torch.allclose(scores[place], features[place] @ slow, atol=1e-10)


def test_inputs_that_allow_no_regression_have_none() -> None:
    inputs, _, given, transition = noisy(40)
    assert as_rows({"a": inputs}) is None
    assert as_rows(inputs.long()) is None
    assert as_rows(torch.zeros(2, ridge.COLUMNS + 1)) is None
    assert not fitted(torch.zeros_like(inputs), given, transition)[0]  # constant
    assert not RidgeSamples(given, torch.zeros_like(given), 3).fit(transition)  # none was kept
    assert are_vectors(inputs)
    assert not are_vectors(inputs.view(40, 2, 3))


def test_a_regression_with_the_features_of_another_predicts_its_samples() -> None:
    inputs, true, given, _ = noisy()
    unit, fold = torch.eye(CLASSES, dtype=torch.float64), stratified_folds(torch.zeros_like(given), FOLDS, seed=1)
    samples = RidgeSamples(given[60:], fold[60:], len(given) - 60)
    samples.add(Batch(torch.arange(len(given) - 60), inputs[60:], given[60:]))
    assert samples.predicted_together(Ridge()) == []  # nothing has been fitted
    first = samples.fit(unit)
    clean = RidgeSamples(true[:60], fold[:60], 60, like=first)
    clean.add(Batch(torch.arange(60), inputs[:60], true[:60]))
    other = clean.fit(unit)
    assert other.kernel is first.kernel
    assert torch.equal(other.mean, first.mean)
    [(index, log_probs)] = samples.predicted_together(other)
    assert torch.allclose(log_probs, other.predict_together(inputs[60:][index]), atol=1e-9)
    each = torch.stack([other.predict(inputs[60:], torch.full_like(given[60:], fold)) for fold in range(FOLDS)])
    assert torch.allclose(other.predict_together(inputs[60:]).exp(), each.exp().mean(0), atol=1e-9)

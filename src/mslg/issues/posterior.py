"""The probability of each class for a sample, from its given label and the network's prediction: neither decides alone.

    posterior of class k  ∝  p_k^a · T[k, given]^b · exp(c + d·log p_given + e·log max p   if k is the given class)

T[k, j] = P(given j | true k) is counted on clean samples with given and verified labels. The five weights start at
Bayes' rule (a = b = 1, the rest 0) and are fitted, regularised towards it, to other clean samples with both labels:
held-out ones, whose predictions are as honest as those for new data. A part of p may be spread over all classes first,
where these samples show that a class the model excludes may well be the true one, as with a few nearest neighbours.
Where no clean sample has both labels, T is estimated from the predictions for the training samples and the network's
confusion on held-out clean ones, and given labels are sampled from it for these; from the predictions alone where clean
samples are few and lack a class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.samples import tell_of_all
from ..noise.smoothed_counts import LogColumns, SmoothedCounts
from ..noise.transition_matrix import count, deconvolved, smooth
from ..runtime.seeds import generator
from ..training.stacking import fit_weights
from .evidence import FOLDS, Evidence, Predictions, VerifiedSamples

Basis = Literal["pairs", "injected", "none"]

LEAST = 1e-6  # smaller probabilities are raised to this
TINY = 1e-12
BAYES = (1.0, 1.0, 0.0, 0.0, 0.0)
# benchmarks/issue_detection.py measures the list that these give (docs/results/issues.md).
PRIOR_STRENGTH = 5.0  # of the regularisation towards Bayes' rule
# benchmarks/any_model.py measures it with models that exclude classes.
FLOORS = (0.01, 0.1, 0.3)  # parts of a prediction that may be spread over all classes
MARGIN = 1.0  # nats of all held-out samples by which a floor must be better than none
MOST_DENSE = 1_000  # classes up to which a transition matrix is stored whole
FEWEST = 20  # held-out pairs below which nothing is fitted
COUNTED = 0.5  # weight of a matrix counted by predictions alone, where they agree with few given labels,
FEW_AGREE, MOST_AGREE = 0.55, 0.8  # and between these less and less: who differs then is more often the network
COPIES = 4  # of each held-out sample with injected noise,
MOST_COPIES = 2**14  # up to this many in all
MOST_ENTRIES = 2**20  # of the probabilities to which the weights are fitted


@dataclass(frozen=True)
class Posterior:
    """P(true class | prediction, given label)."""

    log_columns: Tensor | LogColumns  # (classes, classes): row j holds log T[·, j]
    weights: Tensor  # a, b, c, d, e
    centre: Tensor  # mean of log p_given and of log max p, so that c is the weight of an average given label
    floor: float = 0.0  # the part of a prediction that is spread over all classes

    def __call__(
        self, probs: Tensor, given: Tensor, columns: Tensor | None = None, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """(samples, classes) probabilities of the true label. `columns` replace log T[·, given] of each sample."""
        a, b, *own = self.weights.tolist()
        log_probs, place = self._log(probs, dtype), given.unsqueeze(1)
        of_given = torch.tensor(own[0], dtype=dtype)
        for weight, term in zip(own[1:], self._confidence(log_probs, given), strict=True):
            of_given = of_given + weight * term
        logits = log_probs.mul_(a).add_(self.log_columns[given] if columns is None else columns, alpha=b)
        return logits.scatter_add_(1, place, of_given.to(dtype).expand(len(given)).unsqueeze(1)).softmax(1)

    def transition(self) -> Tensor:
        """(classes, classes) T[k, j] = P(given j | true k)."""
        columns = self.log_columns
        return (columns.dense() if isinstance(columns, LogColumns) else columns).t().exp()

    def log_odds(self, probs: Tensor, given: Tensor) -> Tensor:
        """(samples,) log odds that the given label is wrong."""
        return log_odds_wrong(self(probs, given).gather(1, given.unsqueeze(1)).squeeze(1))

    def _terms(self, probs: Tensor, given: Tensor, columns: Tensor | None = None) -> Tensor:
        """(5, samples, classes) what each weight is multiplied by."""
        log_probs = self._log(probs)
        is_given = F.one_hot(given, probs.shape[1]).double()
        terms = [is_given * term.unsqueeze(1) for term in self._confidence(log_probs, given)]
        return torch.stack([log_probs, self.log_columns[given] if columns is None else columns, is_given, *terms])

    def _confidence(self, log_probs: Tensor, given: Tensor) -> list[Tensor]:
        """Two tensors of (samples,): log p_given and log max p, centred."""
        values = log_probs.gather(1, given.unsqueeze(1)).squeeze(1), log_probs.max(1).values
        return [value - centre for value, centre in zip(values, self.centre, strict=True)]

    def _log(self, probs: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        values = probs.to(dtype, copy=True)
        if self.floor:
            values.mul_(1 - self.floor).add_(self.floor / probs.shape[1])
        return values.clamp_min_(LEAST).log_()

    def fit(self, samples: VerifiedSamples, start: Posterior | None = None) -> Posterior:
        """With the weights that explain the verified labels best, regularised towards Bayes' rule; quicker from a
        `start` that was fitted to similar samples."""
        most = max(1, MOST_ENTRIES // samples.probs.shape[1])
        if len(samples.given) > most:  # more would take memory and hardly change five weights
            samples = samples.at(torch.randperm(len(samples.given), generator=generator(0, "fitted"))[:most])
        probs, given, verified, _, columns = samples
        log_probs = self._log(probs)
        centre = torch.stack([log_probs.gather(1, given.unsqueeze(1)).mean(), log_probs.max(1).values.mean()])
        terms = replace(self, centre=centre)._terms(probs, given, columns)
        near = None if start is None else start.weights
        weights = fit_weights(terms, verified, centre=BAYES, ridge=PRIOR_STRENGTH / 2, least=-math.inf, start=near)
        return replace(self, weights=weights, centre=centre)


def log_odds_wrong(right: Tensor) -> Tensor:
    """Log odds that a label is wrong, from the probability that it is right."""
    return (1 - right).clamp_min(TINY).log() - right.clamp_min(TINY).log()


def bayes_rule(transition: Tensor | SmoothedCounts) -> Posterior:
    """The posterior by Bayes' rule with this transition matrix."""
    columns: Tensor | LogColumns
    if isinstance(transition, SmoothedCounts) and transition.classes > MOST_DENSE:
        columns = LogColumns(transition, LEAST)
    else:
        matrix = transition.dense() if isinstance(transition, SmoothedCounts) else transition
        columns = matrix.double().clamp_min(LEAST).log().t().contiguous()
    return Posterior(columns, torch.tensor(BAYES, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))


def _without_matrix(classes: int) -> Posterior:
    """The posterior that is the prediction: a matrix would count the given label twice."""
    zeros = torch.zeros(1, 1, dtype=torch.float64).expand(classes, classes)
    return Posterior(zeros, torch.tensor(BAYES, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))


@dataclass(frozen=True)
class FittedPosterior:
    """A posterior, and what it says of held-out clean samples."""

    posterior: Posterior
    basis: Basis
    held_out: VerifiedSamples | None = None
    log_odds: Tensor | None = None  # of the held-out labels being wrong, each by a fit on the other folds
    loss: float = float("nan")  # mean −log probability of the verified labels, likewise


def fit_posterior(predictions: Predictions, evidence: Evidence) -> FittedPosterior:
    """The transition matrix from the pairs, the weights from the held-out samples. With none held out, weights fitted
    in-sample have to do, and nothing is known of their worth."""
    if evidence.held_out is not None:
        return _fit(predictions, evidence, evidence.held_out)
    if evidence.in_sample is not None:
        return FittedPosterior(_fit(predictions, evidence, evidence.in_sample).posterior, "none")
    return _by_predictions(predictions)


def _by_predictions(predictions: Predictions) -> FittedPosterior:
    if predictions.include_given:
        return FittedPosterior(_without_matrix(len(predictions.classes)), "none")
    return FittedPosterior(_counted_by_predictions(predictions), "none")


def _counted_by_predictions(predictions: Predictions) -> Posterior:
    """Where the confusion of the network is unknown, its predictions count as true labels."""
    given, predicted = predictions.given_and_predicted()
    rule = bayes_rule(SmoothedCounts.of(given, predicted, len(predictions.classes)))
    if predictions.predicted_in_training is None:
        return rule
    # What it says of two classes is the network's confusion as much as that of the labels. On frozen features it lowers
    # the average precision by .01 where 9 % of the labels are wrong, and raises it by .04 where pairs of classes are
    # swapped (tuning seeds of benchmarks/practitioner.py).
    agreement = float((given == predicted).double().mean())
    weight = COUNTED * min(1.0, max(0.0, (MOST_AGREE - agreement) / (MOST_AGREE - FEW_AGREE)))
    return _towards_symmetric(rule, agreement, weight)


def _counted_on(given: Tensor, verified: Tensor, classes: int) -> Posterior:
    """Bayes' rule with a matrix counted on pairs: the more of them are wrong, the more it says of single classes. Of
    five wrong ones in a hundred, three may be alike by chance (average precision .556 by the counts alone, .567 so: 9 %
    wrong labels, a tuning seed of benchmarks/practitioner.py)."""
    counts, wrong = SmoothedCounts.of(given, verified, classes), int((given != verified).sum())
    return _towards_symmetric(bayes_rule(counts), counts.stay, wrong / (wrong + classes))


def _towards_symmetric(rule: Posterior, right: float, weight: float) -> Posterior:
    """A weighted geometric mean of a rule's matrix and of one that treats all classes alike."""
    if not isinstance(rule.log_columns, Tensor):
        return rule  # too many classes for a dense matrix
    classes = len(rule.log_columns)
    other = max(LEAST, (1 - right) / max(1, classes - 1))
    symmetric = torch.full((classes, classes), other, dtype=torch.float64).fill_diagonal_(max(LEAST, right))
    return replace(rule, log_columns=weight * rule.log_columns + (1 - weight) * symmetric.log())


def _fit(predictions: Predictions, evidence: Evidence, held_out: VerifiedSamples) -> FittedPosterior:
    classes = len(predictions.classes)
    basis: Basis
    if evidence.has_pairs:
        basis, held_out = "pairs", held_out.with_given()
        if predictions.include_given:
            rule = _without_matrix(classes)
        elif not tell_of_all(held_out.verified if evidence.pairs is None else evidence.pairs[1], classes):
            rule = _counted_by_predictions(predictions)
        else:
            rule, held_out = _counted(held_out, evidence, classes)
        if len(held_out.given) < FEWEST:
            return FittedPosterior(rule, "none")
    elif classes > MOST_DENSE or not tell_of_all(held_out.verified, classes):
        # The confusion of so many is not known, and takes their cube of steps to account for; few say little of any.
        return _by_predictions(predictions)
    elif predictions.predicted_in_training is not None:
        # Deconvolved with the confusion on 100 clean samples, a matrix is so wrong that it ranks worse than none:
        # average precision .39 against .58 by this one, and .52 against .60 with 300 (9 % wrong labels, tuning seed of
        # benchmarks/practitioner.py).
        rule = _counted_by_predictions(predictions)
        transition = rule.transition()
        basis = "injected"
        held_out = _inject_noise(held_out, transition / transition.sum(1, keepdim=True), evidence.seed)
    else:
        confusion = smooth(count(held_out.probs.argmax(1), held_out.verified, classes), None)
        shares = deconvolved(predictions.joint_counts(), confusion)
        rule = bayes_rule(smooth(shares * len(predictions), None))
        basis, held_out = "injected", _inject_noise(held_out, rule.transition(), evidence.seed)
    best = without = _cross_validated(rule, held_out)
    for floor in FLOORS:
        tried = _cross_validated(replace(rule, floor=floor), held_out)
        if tried.loss >= best.loss:  # a higher one would be worse still
            break
        best = tried
    if len(held_out.given) * (without.loss - best.loss) < MARGIN:
        best = without
    return replace(best, posterior=best.posterior.fit(held_out), basis=basis)


def _cross_validated(rule: Posterior, held_out: VerifiedSamples) -> FittedPosterior:
    """What the rule says of held-out samples, each by weights fitted on the other folds."""
    fold = held_out.folds()
    probability = torch.empty(len(fold), 2, dtype=torch.float64)  # of the given and of the verified label
    fitted: Posterior | None = None
    for number in range(FOLDS):
        here = held_out.at(fold == number)
        fitted = rule.fit(held_out.at(fold != number), fitted)
        posterior = fitted(here.probs, here.given, here.columns)
        probability[fold == number] = posterior.gather(1, torch.stack([here.given, here.verified], 1))
    log_odds, loss = log_odds_wrong(probability[:, 0]), -probability[:, 1].clamp_min(TINY).log().mean()
    return FittedPosterior(rule, "none", held_out, log_odds, float(loss))


def _counted(held_out: VerifiedSamples, evidence: Evidence, classes: int) -> tuple[Posterior, VerifiedSamples]:
    """Bayes' rule with the matrix counted on all clean samples with both labels that may be used for it; and the
    held-out samples, if the matrix was counted on them too with columns of their own."""
    if not evidence.cross_fitted:
        assert evidence.pairs is not None
        return _counted_on(*evidence.pairs, classes), held_out
    fold, columns = held_out.folds(), torch.empty(len(held_out.given), classes, dtype=torch.float64)
    for number in range(FOLDS):
        others = held_out.at(fold != number)
        rule = _counted_on(others.given, others.verified, classes)
        columns[fold == number] = rule.log_columns[held_out.given[fold == number]]
    rule = _counted_on(held_out.given, held_out.verified, classes)
    return rule, held_out._replace(columns=columns)


def _inject_noise(held_out: VerifiedSamples, transition: Tensor, seed: int) -> VerifiedSamples:
    """Copies of clean samples with given labels sampled from the transition matrix."""
    copies = max(1, min(COPIES, MOST_COPIES // len(held_out.given)))
    held_out = held_out.at(torch.arange(len(held_out.given)).repeat(copies))
    given = torch.multinomial(transition[held_out.verified], 1, generator=generator(seed, "injected noise"))
    return held_out._replace(given=given.squeeze(1))

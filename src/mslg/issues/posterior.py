"""What the label of a sample probably is, from the label given and the network's prediction: neither alone decides.

    posterior of class k  ∝  p_k^a · T[k, given]^b · exp(c + d·log p_given + e·log max p   if k is the given class)

T[k, j] = P(given j | true k) is counted on clean samples that carry both labels. The five weights start at Bayes' rule
(a = b = 1, the rest 0) and are fitted, held near it, on other clean samples that carry both: held-out ones, whose
predictions are as honest as those of a stranger. Where no clean sample carries both, T is worked out from what is
predicted for the training samples and how often the network is mistaken on held-out clean ones, and given labels are
drawn with it for these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.samples import Samples
from ..data.splits import Splits
from ..noise.transition_matrix import count, deconvolved, smooth
from ..runtime.seeds import generator
from ..training.evaluation import predictions
from ..training.method import Method
from ..training.prediction_history import PredictionHistory

Basis = Literal["pairs", "injected", "none"]

LEAST = 1e-6  # a probability below this says no more than this does
TINY = 1e-12
HELD_NEAR = 10.0  # how strongly the weights are held near Bayes' rule: as if by that many samples
BAYES = (1.0, 1.0, 0.0, 0.0, 0.0)
FEWEST = 20  # held-out pairs: fewer say nothing
FOLDS = 5
COPIES = 4  # of each held-out sample when noise is put in,
ENOUGH = 2**14  # but no more than this in all
ENTRIES = 2**20  # probabilities that the weights are fitted to, at most
PIECE = 65536


@dataclass(frozen=True)
class Evidence:
    """Weighs a given label against a prediction."""

    columns: Tensor  # (classes, classes): row j holds log T[·, j]
    weights: Tensor  # a, b, c, d, e
    centre: Tensor  # mean of log p_given and of log max p, so that c is the weight of an average given label

    def posterior(self, probs: Tensor, given: Tensor) -> Tensor:
        """(samples, classes) probabilities of the true label."""
        parts = zip(self.weights, self._terms(probs, given))
        return sum((weight * part for weight, part in parts), torch.zeros(())).softmax(1)

    def transition(self) -> Tensor:
        """(classes, classes) T[k, j] = P(given j | true k)."""
        return self.columns.t().exp()

    def odds(self, probs: Tensor, given: Tensor) -> Tensor:
        """(samples,) log odds that the given label is wrong."""
        right = self.posterior(probs, given).gather(1, given.unsqueeze(1)).squeeze(1)
        return log_odds(right)

    def _terms(self, probs: Tensor, given: Tensor) -> list[Tensor]:
        """Five of (samples, classes): what the weights are for."""
        log_probs = probs.double().clamp_min(LEAST).log()
        is_given = F.one_hot(given, probs.shape[1]).double()
        sure = torch.stack([log_probs.gather(1, given.unsqueeze(1)).squeeze(1), log_probs.max(1).values], 1)
        parts = [is_given * part.unsqueeze(1) for part in (sure - self.centre).unbind(1)]
        return [log_probs, self.columns[given], is_given, *parts]

    def fitted(self, probs: Tensor, given: Tensor, verified: Tensor) -> Evidence:
        """With weights that explain the verified labels best, held near Bayes' rule."""
        most = max(1, ENTRIES // probs.shape[1])
        if len(given) > most:  # five weights need no more, and memory would
            some = torch.randperm(len(given), generator=generator(0, "fitted"))[:most]
            probs, given, verified = probs[some], given[some], verified[some]
        log_probs = probs.double().clamp_min(LEAST).log()
        centre = torch.stack([log_probs.gather(1, given.unsqueeze(1)).mean(), log_probs.max(1).values.mean()])
        terms = torch.stack(Evidence(self.columns, self.weights, centre)._terms(probs, given), 2)
        bayes = torch.tensor(BAYES, dtype=torch.float64)
        weights = bayes.clone().requires_grad_()
        optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(terms @ weights, verified, reduction="sum")
            loss = loss + HELD_NEAR / 2 * ((weights - bayes) ** 2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return Evidence(self.columns, weights.detach(), centre)


def log_odds(right: Tensor) -> Tensor:
    """Log odds of a wrong label, from the probability that it is right."""
    return (1 - right).clamp_min(TINY).log() - right.clamp_min(TINY).log()


def bayes(transition: Tensor) -> Evidence:
    """Bayes' rule with this transition matrix."""
    columns = transition.double().clamp_min(LEAST).log().t().contiguous()
    return Evidence(columns, torch.tensor(BAYES, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))


class Labelled(NamedTuple):
    """Clean samples that no training has seen, each with a given label: its own, or one put in for it."""

    probs: Tensor  # (samples, classes)
    given: Tensor
    verified: Tensor
    sample: Tensor  # which clean sample it is: with labels put in, each is here several times

    def at(self, chosen: Tensor) -> Labelled:
        return Labelled(*(part[chosen] for part in self))

    def renumbered(self) -> Labelled:
        """Each a sample of its own."""
        return self._replace(sample=torch.arange(len(self.given)))

    def fold(self) -> Tensor:
        """Which of the folds each belongs to; a sample is in one fold only."""
        order = torch.randperm(int(self.sample.max()) + 1, generator=generator(0, "folds"))
        return order[self.sample] % FOLDS


@dataclass(frozen=True)
class FittedPosterior:
    """The evidence of a trained method, and what it is worth on clean samples that were held out."""

    evidence: Evidence
    basis: Basis
    held_out: Labelled | None = None
    odds: Tensor | None = None  # of the held-out: log odds of a wrong label, by evidence that was not fitted on it


def weigh(method: Method, data: Splits, history: PredictionHistory) -> FittedPosterior:
    """The evidence of a trained method: T from the steering clean samples, weights from the held-out ones. With none
    held out the steering ones must do for the weights too, but nothing can be stated of what that is worth."""
    classes = method.task.classes
    held_out = labelled(method, data, (data.select, data.report))
    if held_out is not None:
        return posterior_from(held_out, data, history, classes)
    steering = labelled(method, data, (data.unbiased_clean,))
    if steering is None:  # nothing tells how often the network is mistaken: it is taken at its word
        return FittedPosterior(bayes(smooth(joint_of(data, history, classes), None)), "none")
    return FittedPosterior(posterior_from(steering, data, history, classes).evidence, "none")


def posterior_from(held_out: Labelled, data: Splits, history: PredictionHistory, classes: int) -> FittedPosterior:
    """The evidence with weights from these clean samples."""
    if (pairs := data.pairs) is not None:
        rule = bayes(smooth(count(*pairs, classes), None))
        held_out = held_out.at(held_out.given >= 0).renumbered()
        return FittedPosterior(rule, "none") if len(held_out.given) < FEWEST else _fitted(rule, "pairs", held_out)
    confusion = smooth(count(held_out.probs.argmax(1), held_out.verified, classes), None)
    shares = deconvolved(joint_of(data, history, classes), confusion)
    rule = bayes(smooth(shares * len(data.train), None))
    return _fitted(rule, "injected", _injected(held_out, rule, data.seed))


def _fitted(rule: Evidence, basis: Basis, held_out: Labelled) -> FittedPosterior:
    """The rule with its weights fitted; the odds of each part come from a fit on all the others."""
    fold = held_out.fold()
    odds = torch.empty(len(fold), dtype=torch.float64)
    for part in range(FOLDS):
        rest, here = held_out.at(fold != part), held_out.at(fold == part)
        odds[fold == part] = rule.fitted(rest.probs, rest.given, rest.verified).odds(here.probs, here.given)
    return FittedPosterior(rule.fitted(held_out.probs, held_out.given, held_out.verified), basis, held_out, odds)


def labelled(method: Method, data: Splits, parts: Iterable[Samples | None]) -> Labelled | None:
    """These clean samples with what the method says of them: given labels of −1 where unknown."""
    there = [part for part in parts if part is not None and len(part)]
    if not there:
        return None
    training = method.training
    method.eval()
    probs = torch.cat([predictions(method, data, part) for part in there]).exp().clone()  # out of inference mode
    method.train(training)
    given = torch.cat([torch.full_like(part.label, -1) if part.given is None else part.given for part in there])
    return Labelled(probs, given, torch.cat([part.label for part in there]), torch.arange(len(given)))


def _injected(held_out: Labelled, rule: Evidence, seed: int) -> Labelled:
    """Noise of the estimated kind put into clean samples, each several times over."""
    copies = max(1, min(COPIES, ENOUGH // len(held_out.given)))
    held_out = held_out.at(torch.arange(len(held_out.given)).repeat(copies))
    rows = rule.transition()[held_out.verified]
    given = torch.multinomial(rows, 1, generator=generator(seed, "injected noise")).squeeze(1)
    return held_out._replace(given=given)


def joint_of(data: Splits, history: PredictionHistory, classes: int, *, in_passing: bool = True) -> Tensor:
    """(classes, classes) how often each class is predicted (row) for a training sample that was given it (column): in
    passing, before the step, or by the finished network, which has learned some of the given labels."""
    counts = torch.zeros(classes, classes, dtype=torch.float64)
    for index in data.train.index.split(PIECE):
        here = index[history.seen(index)]
        predicted = history.last_predicted[here] if in_passing else history.said(here).argmax(1)
        counts += count(history.given[here.to(history.given.device)], predicted.long(), classes)
    return counts

"""What the label of a sample probably is, from the label given and the network's prediction: neither alone decides.

    posterior of class k  ∝  p_k^a · T[k, given]^b · exp(c + d·log p_given + e·log max p   if k is the given class)

T[k, j] = P(given j | true k) is counted on clean samples that carry both labels. The five weights start at Bayes' rule
(a = b = 1, the rest 0) and are fitted, held near it, on other clean samples that carry both: held-out ones, whose
predictions are as honest as those of a stranger.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .exam import predictions
from .method import Method
from .methods.transition import count, smooth
from .splits import Samples, Splits
from .trace import Trace

LEAST = 1e-6  # a probability below this says no more than this does
HELD_NEAR = 10.0  # how strongly the weights are held near Bayes' rule: as if by that many samples
BAYES = (1.0, 1.0, 0.0, 0.0, 0.0)
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

    def _terms(self, probs: Tensor, given: Tensor) -> list[Tensor]:
        """Five of (samples, classes): what the weights are for."""
        log_probs = probs.double().clamp_min(LEAST).log()
        is_given = F.one_hot(given, probs.shape[1]).double()
        sure = torch.stack([log_probs.gather(1, given.unsqueeze(1)).squeeze(1), log_probs.max(1).values], 1)
        parts = [is_given * part.unsqueeze(1) for part in (sure - self.centre).unbind(1)]
        return [log_probs, self.columns[given], is_given, *parts]

    def fitted(self, probs: Tensor, given: Tensor, verified: Tensor) -> Evidence:
        """With weights that explain the verified labels best, held near Bayes' rule."""
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


def bayes(transition: Tensor) -> Evidence:
    """Bayes' rule with this transition matrix."""
    columns = transition.double().clamp_min(LEAST).log().t().contiguous()
    return Evidence(columns, torch.tensor(BAYES, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))


def weigh(method: Method, data: Splits, trace: Trace) -> Evidence:
    """The evidence of a trained method: T from the steering clean samples, weights from the select part. Without
    samples that carry both labels, T is counted on the training samples, with the predictions as the true labels."""
    classes = method.task.classes
    pairs = data.pairs
    if pairs is None:
        return bayes(smooth(_against_predictions(data, trace, classes), None))
    found = bayes(smooth(count(*pairs, classes), None))
    if data.select is None or data.select.given is None:
        return found
    part = data.select.at((data.select.given >= 0).nonzero().flatten())
    return found.fitted(*_labelled(method, data, part)) if len(part) else found


def _labelled(method: Method, data: Splits, part: Samples) -> tuple[Tensor, Tensor, Tensor]:
    assert part.given is not None
    training = method.training
    method.eval()
    probs = predictions(method, data, part).exp().clone()  # out of inference mode
    method.train(training)
    return probs, part.given, part.label


def _against_predictions(data: Splits, trace: Trace, classes: int) -> Tensor:
    counts = torch.zeros(classes, classes, dtype=torch.float64)
    for index in data.train.index.split(PIECE):
        here = index.to(trace.mean.device)
        here = here[trace.seen()[here]]
        counts += count(trace.given[here].cpu(), trace.mean[here].argmax(1).cpu(), classes)
    return counts

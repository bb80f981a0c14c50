"""Stacking: several predictions of the same samples, combined by weights that are fitted on verified labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FLOOR = 0.01  # probability that is spread over all classes before a logarithm is taken
STEPS, HALVINGS = 50, 30  # of Newton's method: a handful are needed
CLOSE = 1e-6  # of the last step: the error that is left is about its square


def floored(log_probs: Tensor) -> Tensor:
    """(…, classes) log-probabilities in float64, none lower than a prediction can mean."""
    return ((1 - FLOOR) * log_probs.double().exp() + FLOOR / log_probs.shape[-1]).log()


def fit_weights(
    features: Tensor,
    label: Tensor,
    *,
    centre: Sequence[float],
    ridge: float = 1.0,
    least: float = 0.0,
    start: Tensor | None = None,
) -> Tensor:
    """Weights w ≥ least that maximise Σ_j log softmax(Σ_s w_s f_s)_label − ridge·|w − centre|².

    Args:
        features: (sources, samples, classes) logarithms to be weighed.
        label: (samples,) verified labels.
        centre: what the weights are pulled to: with few samples they stay near it.
        ridge: how strongly.
        least: of any weight; −∞ if they may be negative.
        start: (sources,) weights that are near, if known: it takes fewer steps from there.

    Returns:
        (sources,) float64 weights.
    """
    features, label = features.double().cpu().flatten(1), label.cpu()
    target = torch.tensor(centre, dtype=torch.float64)
    chosen = label + torch.arange(len(label)) * (features.shape[1] // max(1, len(label)))
    of_label = features[:, chosen].sum(1)

    def objective(weights: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = (weights @ features).view(len(label), -1).log_softmax(1)
        loss = -log_probs.flatten()[chosen].sum() + ridge * ((weights - target) ** 2).sum()
        return loss, log_probs.exp()

    weights = (target if start is None else start).clone()
    loss, probs = objective(weights)
    for _ in range(STEPS):
        expected = probs.flatten() * features
        mean = expected.view(len(features), *probs.shape).sum(2)
        gradient = mean.sum(1) - of_label + 2 * ridge * (weights - target)
        curvature = expected @ features.T - mean @ mean.T + 2 * ridge * torch.eye(len(features)).double()
        held = (weights <= least) & (gradient > 0)  # a weight that would fall below stays where it is
        curvature[held], curvature[:, held] = 0.0, 0.0
        curvature.diagonal()[held] = 1.0
        step = torch.linalg.solve(curvature, gradient.masked_fill(held, 0.0))
        for halvings in range(HALVINGS):
            moved = (weights - step / 2**halvings).clamp_min(least)
            tried = objective(moved)
            if bool(tried[0] <= loss):
                break
        else:
            break
        far = float((moved - weights).abs().max())
        weights, (loss, probs) = moved, tried
        if far < CLOSE:
            break
    return weights

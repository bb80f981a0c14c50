"""Stacking: several predictions of the same samples, combined by weights that are fitted on verified labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FLOOR = 0.01  # probability that is spread over all classes before a logarithm is taken


def floored(log_probs: Tensor) -> Tensor:
    """(…, classes) log-probabilities in float64, none lower than a prediction can mean."""
    return ((1 - FLOOR) * log_probs.double().exp() + FLOOR / log_probs.shape[-1]).log()


def fit_weights(features: Tensor, label: Tensor, *, centre: Sequence[float], ridge: float = 1.0) -> Tensor:
    """Weights w ≥ 0 that maximise Σ_j log softmax(Σ_s w_s f_s)_label − ridge·|w − centre|².

    Args:
        features: (sources, samples, classes) logarithms to be weighed.
        label: (samples,) verified labels.
        centre: what the weights are pulled to: with few samples they stay near it.

    Returns:
        (sources,) float64 weights.
    """
    features, label = features.double().cpu(), label.cpu()
    target = torch.tensor(centre, dtype=torch.float64)
    weights = target.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=50, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        log_probs = (weights.abs()[:, None, None] * features).sum(0).log_softmax(1)
        value = -log_probs.gather(1, label[:, None]).sum() + ridge * ((weights.abs() - target) ** 2).sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(objective)
    return weights.detach().abs()

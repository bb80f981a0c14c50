"""A second, slow version of the smoothed transition matrix, in plain loops."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mslg.noise.smoothed_counts import EVEN
from mslg.noise.transition_matrix import STRENGTHS


def slowly_smoothed(counts: Tensor) -> Tensor:
    """(classes, classes) from counts of (true, given), with the strength of the best leave-one-out likelihood."""
    n = [[float(value) for value in row] for row in counts]
    classes = range(len(n))
    right, all_ = sum(n[k][k] for k in classes), sum(map(sum, n))
    stay = (right + 1) / (all_ + 2)
    wrong = [sum(n[k][j] for k in classes if k != j) + EVEN / len(n) for j in classes]

    def prior(k: int, j: int) -> float:
        return stay if k == j else (1 - stay) * wrong[j] / sum(wrong[other] for other in classes if other != k)

    def likelihood(strength: float) -> float:
        return sum(
            n[k][j] * math.log((n[k][j] - 1 + strength * prior(k, j)) / (sum(n[k]) - 1 + strength))
            for k in classes
            for j in classes
            if n[k][j]
        )

    best = max(STRENGTHS, key=likelihood)
    rows = [[(n[k][j] + best * prior(k, j)) / (sum(n[k]) + best) for j in classes] for k in classes]
    return torch.tensor(rows, dtype=torch.float64)


def slow_columns(counts: Tensor) -> Tensor:
    """(classes, classes) log T[·, j] in row j, where the matrix counts as much as there are wrong labels among those
    counted, and one that treats all classes alike as much as there are classes."""
    smoothed, classes = slowly_smoothed(counts), len(counts)
    right, all_ = float(counts.diagonal().sum()), float(counts.sum())
    stay, weight = (right + 1) / (all_ + 2), (all_ - right) / (all_ - right + classes)
    found = torch.empty(classes, classes, dtype=torch.float64)
    for k in range(classes):
        for j in range(classes):
            alike = stay if k == j else (1 - stay) / (classes - 1)
            found[j, k] = weight * math.log(max(1e-6, float(smoothed[k, j]))) + (1 - weight) * math.log(alike)
    return found

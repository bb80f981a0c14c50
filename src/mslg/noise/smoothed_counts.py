"""A transition matrix counted on few samples, kept as its counts: with many classes the matrix itself would not fit
into memory.

    T[k, j]  =  (count[k, j] + strength · pooled[k, j]) / (total[k] + strength)

pooled[k, j] is the share of right labels for j = k, and the rest, divided as the wrong labels of all classes together
are, for the others. The strength is the one with the highest leave-one-out likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .transition_matrix import STRENGTHS

EVEN = 50.0  # wrong labels that are divided evenly over the classes, beside those counted (benchmarks/any_model.py)


@dataclass(frozen=True)
class SmoothedCounts:
    """T[k, j] = P(given j | true k). Only the cells with a count are stored."""

    true: Tensor  # (cells,) in ascending order of `given`
    given: Tensor
    count: Tensor
    total: Tensor  # (classes,) samples of each true class
    stay: float  # the share of right labels
    wrong: Tensor  # (classes,) how often each class is a wrong label, smoothed
    strength: float = 0.0

    @classmethod
    def of(cls, given: Tensor, true: Tensor, classes: int) -> SmoothedCounts:
        """Counted on these labels, with the best strength."""
        cells, counts = (given * classes + true).unique(return_counts=True)
        at_given, at_true, count = cells // classes, cells % classes, counts.double()
        total = torch.bincount(true, minlength=classes).double()
        off = at_given != at_true
        wrong = torch.bincount(at_given[off], count[off], minlength=classes).double() + EVEN / classes
        stay = (float(count[~off].sum()) + 1) / (len(given) + 2)
        found = cls(at_true, at_given, count, total, stay, wrong)
        best = max(STRENGTHS, key=found.leave_one_out)
        return cls(at_true, at_given, count, total, stay, wrong, best)

    @property
    def classes(self) -> int:
        return len(self.total)

    def leave_one_out(self, strength: float) -> float:
        """Log-likelihood of every counted sample under the matrix smoothed from all the others."""
        spread = (1 - self.stay) * self.wrong[self.given] / (self.wrong.sum() - self.wrong[self.true])
        prior = torch.where(self.true == self.given, self.stay, spread)
        others = (self.count - 1) + strength * prior
        return float((self.count * (others / (self.total[self.true] - 1 + strength)).log()).sum())

    def columns(self, given: Tensor) -> Tensor:
        """(samples, classes) T[·, given] of each."""
        labels, place = given.unique(return_inverse=True)
        rows = self.strength * (1 - self.stay) * self.wrong[labels, None] / (self.wrong.sum() - self.wrong)
        rows[torch.arange(len(labels)), labels] = self.strength * self.stay
        at = torch.full((self.classes,), -1)
        at[labels] = torch.arange(len(labels))
        here = at[self.given] >= 0
        rows.index_put_((at[self.given[here]], self.true[here]), self.count[here], accumulate=True)
        return (rows / (self.total + self.strength))[place]

    def dense(self) -> Tensor:
        """(classes, classes) the matrix."""
        return self.columns(torch.arange(self.classes)).t()

    def given_shares(self, shares: Tensor) -> Tensor:
        """(classes,) shares of given labels from those of true ones."""
        weight = shares / (self.total + self.strength)
        spread = self.strength * (1 - self.stay) * weight / (self.wrong.sum() - self.wrong)
        found = self.wrong * (spread.sum() - spread) + self.strength * self.stay * weight
        return found.index_add(0, self.given, self.count * weight[self.true])

    def mean_over_given(self, values: Tensor) -> Tensor:
        """(classes,) Σ_j T[k, j] · values[j] for each true class k."""
        mass = self.wrong * values
        found = self.strength * (1 - self.stay) * (mass.sum() - mass) / (self.wrong.sum() - self.wrong)
        found = found + self.strength * self.stay * values
        return found.index_add(0, self.true, self.count * values[self.given]) / (self.total + self.strength)


class LogColumns:
    """log T[·, given], computed when asked for: `columns[given]` like that of a matrix."""

    def __init__(self, counts: SmoothedCounts, least: float) -> None:
        self.counts, self.least = counts, least

    def __getitem__(self, given: Tensor) -> Tensor:
        return self.counts.columns(given).clamp_min(self.least).log()

    def dense(self) -> Tensor:
        """(classes, classes) all of them."""
        return self[torch.arange(self.counts.classes)]

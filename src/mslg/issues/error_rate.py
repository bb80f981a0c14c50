"""How many labels are wrong, and how many of the listed ones are: stated with intervals, without true labels.

The list is ordered by the odds that a label is wrong. What these odds are worth is measured on clean samples that were
held out and carry a given label, by a logistic curve

    P(wrong)  =  σ(level + slope · z),        z = the odds, less their mean, in units of their spread

z is taken within each group, held-out and training samples: both were given their labels in the same way, so equal
places among their own kind mean the same, though the network knows its training samples better and is surer of them.
The level is such that the mean over the training samples is the share of wrong labels among all clean samples that
carry both labels, less the wrong ones that a review has found and taken out. Everything is drawn again and again with
random weights on the clean samples (the Bayesian bootstrap); the intervals are the range of the middle nine tenths of
the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data.sample_table import pieces
from ..data.splits import Splits
from ..runtime.seeds import generator, numpy_generator
from ..training.prediction_history import PredictionHistory
from .posterior import FEWEST, Basis, FittedPosterior
from .wrong_share import class_weights, share_left, share_of_pairs, share_of_predictions

DRAWS = 300
INNER = 0.9  # of the draws that an interval holds
SLOPE_RANGE = 1.0  # how far the slope may be from what the odds themselves say, as a part of it
SHAPE = 0.2  # the curve need not be logistic: its slope is off by a factor of about exp(±this)
BINS = 1000
MOST = 4096  # held-out labels that the slope is fitted to: more would cost time and say little more
A_CLASS = 10  # held-out clean samples, at least, where the noise must be worked out from the network's mistakes
NONE = "no clean samples are held out: it takes 200 clean samples to hold some out"
FEW = "too few held-out clean samples carry the label they had been given"
APART = (
    f"clean samples that do not carry the label they had been given must be {A_CLASS} a class, held out, and are fewer"
)
UNSEEN = "no training samples were trained on"


class Interval(NamedTuple):
    """A number and the range that should hold the true one in nine of ten runs."""

    estimate: float
    low: float
    high: float

    def as_json(self, factor: float = 1.0) -> dict[str, float]:
        return {name: factor * value for name, value in self._asdict().items()}


@dataclass(frozen=True)
class Calibration:
    """What the odds of the list are worth, in many draws."""

    mean: float
    spread: float
    slope: Tensor  # (draws,)
    level: Tensor
    floor: Tensor  # the part of even the surest that is not wrong: no sample of a few hundred can show less
    share: Tensor  # of wrong labels among the training samples
    seed: int = 0

    def chance(self, odds: Tensor) -> Tensor:
        """(samples,) P(wrong), the mean of the draws."""
        grid = torch.linspace(float(odds.min()), float(odds.max()) + 1e-9, BINS, dtype=torch.float64)
        values = self._drawn(grid).mean(0)
        found = torch.empty_like(odds)
        for here in pieces(len(odds)):
            place = ((odds[here] - grid[0]) / (grid[1] - grid[0])).clamp(0, BINS - 1.001)
            low = place.long()
            found[here] = torch.lerp(values[low], values[low + 1], place - low)
        return found

    def precision(self, odds: Tensor, depths: list[int]) -> list[Interval]:
        """How many of the first so many are wrong. The odds are sorted, highest first."""
        random = generator(self.seed, "precision")
        found = []
        for depth, part in zip(depths, self.parts(odds, depths).unbind(1)):
            found.append(_among(depth, part, random))
        return found

    def share_among(self, samples: int) -> Interval:
        """How many of all are wrong."""
        return _among(samples, self.share, generator(self.seed, "share"))

    def parts(self, odds: Tensor, depths: list[int]) -> Tensor:
        """(draws, depths) the part of the first so many that is expected to be wrong."""
        edges = _edges(len(odds), depths)
        sizes = edges.diff().double()
        wrong = (self._drawn(_means(odds, edges)) * sizes).cumsum(1)
        last = torch.searchsorted(edges[1:], torch.tensor(depths))
        return (wrong[:, last] / torch.tensor(depths)).clamp(0, 1)

    def _drawn(self, odds: Tensor) -> Tensor:
        """(draws, odds) P(wrong)."""
        z = (odds - self.mean) / self.spread
        return (1 - self.floor[:, None]) * torch.sigmoid(self.level[:, None] + self.slope[:, None] * z)


@dataclass(frozen=True)
class ErrorRate:
    """The statement that goes with a list."""

    samples: int  # on the list
    basis: Basis
    held_out: int  # clean samples that it rests on
    why: str | None  # there is no statement
    calibration: Calibration | None = None

    def cut(self, odds: Tensor, fdr: float) -> int:
        """How long the list may be if at most this part of it should be right after all. Odds sorted, highest first."""
        if self.calibration is None:
            raise _unkept(fdr, self.why)
        if not len(odds):
            return 0
        depths = _edges(len(odds), [])[1:].tolist()
        parts = self.calibration.parts(odds, depths).mean(0)
        return max((depth for depth, part in zip(depths, parts.tolist()) if part >= 1 - fdr), default=0)

    def as_json(self, odds: Tensor, flagged: Tensor, fdr: float | None) -> dict[str, Any]:
        """For the summary. The odds are sorted, highest first; `flagged` says which of them are called issues."""
        about = {"basis": self.basis, "samples": self.held_out, "fdr": fdr, "why": self.why}
        if self.calibration is None or not len(odds):
            return about
        share = self.calibration.share_among(self.samples)
        depths = _depths(len(odds))
        steps = zip(depths, self.calibration.precision(odds, depths))
        number = int(flagged.sum())
        marked = self.calibration.precision(odds[flagged], [number])[0].as_json() if number else {}
        return {
            **about,
            "share": share.as_json(),
            "count": share.as_json(self.samples),
            "precision": [{"depth": depth, **at.as_json()} for depth, at in steps],
            "flagged": {"depth": number, **marked},
        }


def check_fdr(fdr: float, data: Splits) -> None:
    """Refuse what could not be kept after training either."""
    if not 0 < fdr < 1:
        raise ValueError(f"fdr is {fdr}; it must be between 0 and 1: the part of the list that may be right after all")
    if (why := missing(data)) is not None:
        raise _unkept(fdr, why)


def missing(data: Splits) -> str | None:
    """What is missing for a statement, if anything is. Known before any training."""
    held_out = [part for part in (data.select, data.report) if part is not None and len(part)]
    if not held_out:
        return NONE
    both = sum(int((part.given >= 0).sum()) for part in held_out if part.given is not None)
    if data.pairs is not None:
        return FEW if both < FEWEST else None
    classes = int(data.train.label.max()) + 1
    return APART if sum(map(len, held_out)) < A_CLASS * classes else None


def state(weighed: FittedPosterior, odds: Tensor, data: Splits, history: PredictionHistory) -> ErrorRate:
    """The error rate of a list with these odds, sorted or not."""
    held_out = weighed.held_out
    if held_out is None or weighed.odds is None or len(odds) < 2 or missing(data) is not None:
        return ErrorRate(len(odds), "none", 0, missing(data) or UNSEEN)
    number = int(held_out.sample.max()) + 1
    random = generator(data.seed, "error rate")
    weight = torch.empty(DRAWS, number, dtype=torch.float64).exponential_(generator=random)[:, held_out.sample]
    if weighed.basis == "pairs":
        share = share_left(share_of_pairs(held_out, weight, data, random), data)
        weight = weight * class_weights(held_out.given, held_out.verified, held_out.probs.shape[1], data)
    else:
        share = share_of_predictions(held_out, weight, data, history, random)
    wrong = (held_out.given != held_out.verified).double()
    centre = (weight * weighed.odds).sum(1) / weight.sum(1)
    apart = weighed.odds - centre[:, None]
    spread = ((weight * apart**2).sum(1) / weight.sum(1)).sqrt().clamp_min(1e-6)
    some = torch.randperm(len(wrong), generator=random)[:MOST]
    slope = logistic_slope((apart / spread[:, None])[:, some], wrong[some], weight[:, some], spread)
    slope = slope * torch.exp(SHAPE * torch.randn(DRAWS, generator=random, dtype=torch.float64))
    odds = odds.double()
    mean, own = float(odds.mean()), float(odds.std().clamp_min(1e-6))
    floor = _floor(float(wrong.mean()) * number, data.seed)
    level = _level(descending(odds).sub_(mean).div_(own), slope, (share / (1 - floor)).clamp(max=1 - 1e-6))
    return ErrorRate(
        len(odds), weighed.basis, number, None, Calibration(mean, own, slope, level, floor, share, data.seed)
    )


def logistic_slope(z: Tensor, wrong: Tensor, weight: Tensor, expected: Tensor, steps: int = 25) -> Tensor:
    """(draws,) slope of a weighted logistic regression with a free level, held near what is expected. By Newton."""
    level, slope = torch.zeros_like(expected), expected.clone()
    held = 1 / (SLOPE_RANGE * expected) ** 2
    for _ in range(steps):
        p = torch.sigmoid(level[:, None] + slope[:, None] * z)
        rest, curve = (p - wrong) * weight, p * (1 - p) * weight + 1e-9
        by_level, by_slope = rest.sum(1) + 1e-3 * level, (rest * z).sum(1) + held * (slope - expected)
        a, b, c = curve.sum(1) + 1e-3, (curve * z).sum(1), (curve * z * z).sum(1) + held
        det = a * c - b * b
        step = (torch.stack([b * by_slope - c * by_level, b * by_level - a * by_slope]) / det).clamp(-2, 2)
        level, slope = level + step[0], (slope + step[1]).clamp_min(0.01)
        if float(step.abs().max()) < 1e-8:
            break
    return slope


def _level(z: Tensor, slope: Tensor, share: Tensor) -> Tensor:
    """(draws,) the level at which the mean over these is the share, by bisection. Sorted z are taken in bins."""
    edges = _edges(len(z), [])
    middle, part = _means(z, edges), edges.diff().double() / len(z)
    low, high = torch.full_like(slope, -60.0), torch.full_like(slope, 60.0)
    for _ in range(32):
        level = (low + high) / 2
        below = (torch.sigmoid(level[:, None] + slope[:, None] * middle) * part).sum(1) < share
        low, high = torch.where(below, level, low), torch.where(below, high, level)
    return low


def _floor(wrong: float, seed: int) -> Tensor:
    """(draws,) of a Beta(½, ½ + wrong): what no right one among that many leaves possible."""
    drawn: Tensor = torch.from_numpy(numpy_generator(seed, "floor").beta(0.5, 0.5 + wrong, DRAWS))
    return drawn


def _unkept(fdr: float, why: str | None) -> ValueError:
    return ValueError(f"fdr = {fdr} cannot be kept: {why}; give more clean samples, or leave fdr out")


def _among(samples: int, part: Tensor, random: torch.Generator) -> Interval:
    """How many of so many are wrong, where this part (draws,) is expected to be: chance adds to what is not known."""
    drawn = torch.binomial(torch.full_like(part, samples), part, generator=random) / samples
    estimate = float(part.mean())
    low, high = (float(drawn.quantile((1 + side * INNER) / 2)) for side in (-1, 1))
    return Interval(estimate, min(low, estimate), max(high, estimate))  # of a few, all or none may be wrong


def _edges(count: int, depths: list[int]) -> Tensor:
    """Bounds of bins over a sorted list, narrow at its top."""
    top = torch.arange(0, min(count, BINS), 5)
    edges = torch.cat([top, torch.linspace(0, count, BINS).long(), torch.tensor([*depths, count])])
    found: Tensor = edges.unique()
    return found


def descending(values: Tensor) -> Tensor:
    """A sorted copy, highest first; of many values much smaller than what `Tensor.sort` needs."""
    ordered: Tensor = torch.from_numpy(np.sort(-values.numpy()))
    return ordered.neg_()


def _means(values: Tensor, edges: Tensor) -> Tensor:
    """The mean in each bin."""
    sums = np.add.reduceat(values.numpy(), edges[:-1].numpy())
    return torch.from_numpy(sums) / edges.diff()


def _depths(count: int) -> list[int]:
    """Depths to tell: 10, 20, 50, 100, … and all."""
    steps = [base * 10**power for power in range(1, 9) for base in (1, 2, 5)]
    return [*(step for step in steps if step < count), count]

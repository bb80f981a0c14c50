"""How many labels are wrong, and how many of the listed ones: estimates with intervals, without true labels.

The list is sorted by the log odds that a label is wrong. How often such labels really are wrong is measured on held-out
clean samples with a given label, by a logistic curve

    P(wrong)  =  σ(level + slope · z + Σ bend_k · max(0, z − knot_k)),        z = the log odds, standardised

The bends, at two quantiles of z, let the curve rise faster or slower towards the top of the list, where there are few
held-out samples to see it: drawn from their prior, they widen the intervals there as far as the samples allow.
z is standardised within each group, held-out and training samples: both were given their labels in the same way, so
equal z mean the same, though the network has seen its training samples and is more confident about them. The level is
set so that the mean over the training samples is the share of wrong labels among all clean samples with both labels,
less the wrong ones that a review has taken out. Everything is repeated with random weights on the clean samples (the
Bayesian bootstrap); the intervals hold the middle nine tenths of the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data.sample_table import pieces
from ..runtime.seeds import generator, numpy_generator
from .evidence import Evidence, Predictions
from .posterior import FEWEST, Basis, FittedPosterior
from .statement import PER_CLASS, TOO_FEW_PER_CLASS, why_none_flagged
from .wrong_share import class_weights, share_from_pairs, share_from_predictions

DRAWS = 300
COVERAGE = 0.9  # of the intervals
# benchmarks/error_rate.py measures how many of the intervals that these give hold the truth (docs/results/issues.md).
SLOPE_RANGE = 1.0  # standard deviation of the prior of the slope, as a fraction of what the log odds themselves imply
KNOTS = (0.6, 0.9)  # quantiles of the log odds at which the curve may bend
BEND_RANGE = 0.75  # like SLOPE_RANGE, of the change of slope at each
SHAPE_ERROR = 0.2  # the curve need not be logistic: its slope is off by a factor of about exp(±this)
# The same where clean samples are predicted by networks of folds alone and the list by these and the finished network,
# which tell wrong labels apart somewhat better: the list is steeper by a factor of about exp(first ± second). Without,
# its first 500 are better than stated in half of the draws of 100 pairs (40 % wrong labels by people's confusions, a
# tuning seed of benchmarks/practitioner.py).
BY_FOLDS = (0.2, 0.3)
BINS = 1000
LEVEL_STEPS, LEVEL_ERROR = 60, 1e-8  # of the search for a level: a handful are needed
MOST = 4096  # held-out labels to which the slope is fitted: more take time and add little
GROUPS = 512  # of neighbouring ones, which count as one
TOGETHER = 40  # draws fitted at once: what they need stays in the cache
NO_CLEAN_SAMPLES = "there are no clean samples"
NOT_HELD_OUT = "no clean samples are held out: it takes 200 clean samples to hold some out, or a method that cross-fits"
TOO_FEW_PAIRS = "too few held-out clean samples have a given label beside the verified one"
NOTHING_PREDICTED = "no training samples were trained on"


class Interval(NamedTuple):
    """An estimate and its 90 % interval."""

    estimate: float
    low: float
    high: float

    def as_json(self, factor: float = 1.0) -> dict[str, float]:
        return {name: factor * value for name, value in self._asdict().items()}


@dataclass(frozen=True)
class Calibration:
    """The curve from log odds to P(wrong), in many draws."""

    mean: float
    spread: float
    slope: Tensor  # (draws, 1 + knots) of z, and the changes of slope
    level: Tensor  # (draws,)
    floor: Tensor  # the fraction that is right however high the odds: a few hundred samples cannot exclude it
    share: Tensor  # of wrong labels among the training samples
    knots: Tensor  # (knots,) of z
    seed: int = 0

    def probability_wrong(self, log_odds: Tensor) -> Tensor:
        """(samples,) the mean of the draws."""
        grid = torch.linspace(float(log_odds.min()), float(log_odds.max()) + 1e-9, BINS, dtype=torch.float64)
        values = self.draws(grid).mean(0).cummax(0).values  # the higher the odds, the lower the quality
        result = torch.empty_like(log_odds)
        for here in pieces(len(log_odds)):
            place = ((log_odds[here] - grid[0]) / (grid[1] - grid[0])).clamp(0, BINS - 1.001)
            low = place.long()
            result[here] = torch.lerp(values[low], values[low + 1], place - low)
        return result

    def precision(self, log_odds: Tensor, depths: list[int]) -> list[Interval]:
        """The fraction of wrong labels at the top of the list, down to each depth. Log odds in descending order."""
        random = generator(self.seed, "precision")
        parts = self.expected_precision(log_odds, depths).unbind(1)
        return [_interval(depth, part, random) for depth, part in zip(depths, parts, strict=True)]

    def wrong_share(self, samples: int) -> Interval:
        """The fraction of wrong labels among all."""
        return _interval(samples, self.share, generator(self.seed, "share"))

    def length_for_f1(self, log_odds: Tensor) -> int:
        """The depth at which precision and recall are best balanced: of the highest expected F1. Log odds in descending
        order."""
        edges, share = _edges(len(log_odds), []), float(self.share.mean())
        wrong = self.draws(_bin_means(log_odds, edges)).mean(0)
        # Where hardly anything tells labels apart, F1 would be best with all of them.
        likelier = int((wrong > share).sum())
        depths, so_far = edges[1:], (wrong * edges.diff()).cumsum(0)
        f1 = 2 * so_far / (depths + share * len(log_odds))
        return int(depths[f1[:likelier].argmax()]) if likelier else 0

    def expected_precision(self, log_odds: Tensor, depths: list[int]) -> Tensor:
        """(draws, depths) the expected fraction of wrong labels down to each depth."""
        edges = _edges(len(log_odds), depths)
        sizes = edges.diff().double()
        wrong = (self.draws(_bin_means(log_odds, edges)) * sizes).cumsum(1)
        last = torch.searchsorted(edges[1:], torch.tensor(depths))
        return (wrong[:, last] / torch.tensor(depths)).clamp(0, 1)

    def draws(self, log_odds: Tensor) -> Tensor:
        """(draws, samples) P(wrong)."""
        curve = self.slope @ bent((log_odds - self.mean) / self.spread, self.knots).t()
        return (1 - self.floor[:, None]) * torch.sigmoid(self.level[:, None] + curve)


@dataclass(frozen=True)
class ErrorRate:
    """The estimate that goes with a list."""

    samples: int  # on the list
    basis: Basis
    held_out: int  # clean samples on which it rests
    why: str | None  # there is no estimate
    calibration: Calibration | None = None

    def length_for_fdr(self, log_odds: Tensor, fdr: float) -> int:
        """How many labels can be flagged at this false discovery rate. Log odds in descending order."""
        if self.calibration is None:
            raise _fdr_error(fdr, self.why)
        if not len(log_odds):
            return 0
        depths = _edges(len(log_odds), [])[1:].tolist()
        precision = self.calibration.expected_precision(log_odds, depths).mean(0).tolist()
        return max((depth for depth, part in zip(depths, precision, strict=True) if part >= 1 - fdr), default=0)

    def summary(self, log_odds: Tensor, flagged: Tensor, fdr: float | None) -> dict[str, Any]:
        """For summary.json. Log odds in descending order, and which of these labels are flagged."""
        about = {"basis": self.basis, "samples": self.held_out, "fdr": fdr, "why": self.why}
        if self.calibration is None or not len(log_odds):
            return about
        share, depths, number = self.calibration.wrong_share(self.samples), _depths(len(log_odds)), int(flagged.sum())
        intervals = zip(depths, self.calibration.precision(log_odds, depths), strict=True)
        precision = [{"depth": depth, **interval.as_json()} for depth, interval in intervals]
        of_flagged: dict[str, Any] = {}
        if number:
            of_flagged = self.calibration.precision(log_odds[flagged], [number])[0].as_json()
        elif fdr is not None:
            of_flagged = {"why": why_none_flagged(fdr, self.held_out, share.estimate, precision[0])}
        return {
            **about,
            "share": share.as_json(),
            "count": share.as_json(self.samples),
            "precision": precision,
            "flagged": {"depth": number, **of_flagged},
        }


def check_fdr(fdr: float, why: str | None) -> None:
    """Refuse a false discovery rate that cannot be kept; `why` is what `missing_evidence` returns."""
    if not 0 < fdr < 1:
        raise ValueError(f"fdr is {fdr}; it must be between 0 and 1: the fraction of flagged labels that may be right")
    if why is not None:
        raise _fdr_error(fdr, why)


def missing_evidence(held_out_given: Tensor, *, pairs: bool, classes: int) -> str | None:
    """What is missing for an estimate, if anything. Known before any training: `held_out_given` are the given labels of
    the held-out clean samples, −1 where unknown, and `pairs` says whether other clean samples have both labels."""
    if not len(held_out_given):
        return NOT_HELD_OUT
    if pairs:
        return TOO_FEW_PAIRS if int((held_out_given >= 0).sum()) < FEWEST else None
    return TOO_FEW_PER_CLASS if len(held_out_given) < PER_CLASS * classes else None


def estimate_error_rate(
    fitted: FittedPosterior, log_odds: Tensor, predictions: Predictions, evidence: Evidence
) -> ErrorRate:
    """The error rate of a list with these log odds, in any order."""
    why = missing_evidence(
        torch.empty(0) if evidence.held_out is None else evidence.held_out.given,
        pairs=evidence.has_pairs,
        classes=int(predictions.given.max()) + 1,
    )
    if evidence.held_out is None and evidence.in_sample is None and evidence.pairs is None:
        why = NO_CLEAN_SAMPLES
    held_out = fitted.held_out
    if held_out is None or fitted.log_odds is None or len(log_odds) < 2 or why is not None:
        return ErrorRate(len(log_odds), "none", 0, why or NOTHING_PREDICTED)
    number = int(held_out.sample.max()) + 1
    random = generator(evidence.seed, "error rate")
    weight = torch.empty(DRAWS, number, dtype=torch.float64).exponential_(generator=random)
    weight = weight.index_select(1, held_out.sample)
    if fitted.basis == "pairs":
        share = share_from_pairs(held_out, predictions, evidence, weight, random)
        weight = weight * class_weights(held_out.given, held_out.verified, predictions, evidence.class_shift)
    else:
        share = share_from_predictions(held_out, predictions, weight, random)
    wrong = (held_out.given != held_out.verified).double()
    middle = (weight * fitted.log_odds).sum(1) / weight.sum(1)
    spread = ((weight * (fitted.log_odds - middle[:, None]) ** 2).sum(1) / weight.sum(1)).sqrt().clamp_min(1e-6)
    log_odds = log_odds.double()
    mean, own_spread = float(log_odds.mean()), float(log_odds.std().clamp_min(1e-6))
    z = descending(log_odds).sub_(mean).div_(own_spread)
    knots = z[[min(len(z) - 1, int((1 - part) * len(z))) for part in KNOTS]]
    some = torch.randperm(len(wrong), generator=random)[:MOST]
    odds, wrong_weight, weight = in_groups(
        fitted.log_odds[some], *(each.index_select(1, some) for each in (weight * wrong, weight))
    )
    terms = bent((odds - middle[:, None]) / spread[:, None], knots)
    centre, range_ = _slope_prior(spread, random)
    slope = logistic_slope(terms, wrong_weight / weight.clamp_min(1e-300), weight, centre, range_)
    steeper, off = BY_FOLDS if evidence.by_folds else (0.0, SHAPE_ERROR)
    slope[:, 0] *= torch.exp(steeper + off * torch.randn(DRAWS, generator=random, dtype=torch.float64))
    floor = _floor(float(wrong.mean()) * number, evidence.seed)
    level = level_for_share(z, slope, knots, (share / (1 - floor)).clamp(max=1 - 1e-6))
    calibration = Calibration(mean, own_spread, slope, level, floor, share, knots, evidence.seed)
    return ErrorRate(len(log_odds), fitted.basis, number, None, calibration)


def in_groups(log_odds: Tensor, *weights: Tensor) -> list[Tensor]:
    """(groups,) means of neighbouring log odds, and (draws, groups) sums of each of the (draws, samples) weights. To a
    curve of three slopes, samples that are so close are the same."""
    order = log_odds.argsort()
    size = -(-len(order) // GROUPS)
    if size == 1:
        return [log_odds, *weights]
    starts = np.arange(0, len(order), size)
    sizes = np.diff(starts, append=len(order))
    means = np.add.reduceat(log_odds[order].numpy(), starts) / sizes
    return [torch.from_numpy(means)] + [
        torch.from_numpy(np.add.reduceat(weight.index_select(1, order).numpy(), starts, axis=1)) for weight in weights
    ]


def bent(z: Tensor, knots: Tensor) -> Tensor:
    """(…, 1 + knots) z, and how far it is above each knot."""
    return torch.cat([z.unsqueeze(-1), (z.unsqueeze(-1) - knots).clamp_min(0)], -1)


def _slope_prior(expected: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """(draws, 1 + knots) slopes drawn from their prior, and its standard deviations. Fitted slopes are pulled to a draw
    and not to the mean: where no samples say otherwise, they are as different as the prior allows."""
    spread = expected[:, None] * torch.tensor([SLOPE_RANGE, *[BEND_RANGE] * len(KNOTS)], dtype=torch.float64)
    centre = torch.randn(spread.shape, generator=random, dtype=torch.float64) * spread
    centre[:, 0] += expected
    return centre, spread


def logistic_slope(
    terms: Tensor, wrong: Tensor, weight: Tensor, centre: Tensor, spread: Tensor, steps: int = 25
) -> Tensor:
    """(draws, terms) slopes of a weighted logistic regression, by Newton's method.

    Args:
        terms: (draws, samples, terms).
        wrong: (samples,) 0 or 1, or (draws, samples) fractions.
        weight: (draws, samples).
        centre: (draws, terms) what the slopes are regularised towards.
        spread: (draws, terms) the standard deviations of their prior.
    """
    start = torch.cat([torch.zeros(1, dtype=torch.float64), centre.median(0).values])
    wrong, found = wrong.expand(len(terms), -1), []
    for first in range(0, len(terms), TOGETHER):
        at = slice(first, first + TOGETHER)
        found.append(_newton(terms[at], wrong[at], weight[at], centre[at], spread[at], start, steps))
        start = found[-1].median(0).values  # near the solutions of the other draws
    slope = torch.cat(found)[:, 1:].contiguous()
    slope[:, 0].clamp_min_(0.01)
    return slope


def _newton(
    terms: Tensor, wrong: Tensor, weight: Tensor, centre: Tensor, spread: Tensor, start: Tensor, steps: int
) -> Tensor:
    """(draws, 1 + terms) level and slopes."""
    free = torch.zeros_like(centre[:, :1])  # the level is nearly free
    centre, held = torch.cat([free, centre], 1), torch.cat([free + 1e-3, 1 / spread**2], 1)
    rows = torch.cat([torch.ones_like(terms[..., :1]), terms], 2).transpose(1, 2).contiguous()
    found = start.expand_as(centre)
    curve = torch.empty(*centre.shape, centre.shape[1], dtype=torch.float64)
    for _ in range(steps):
        p = torch.sigmoid((found.unsqueeze(1) @ rows).squeeze(1))
        gradient = (rows @ ((p - wrong) * weight).unsqueeze(2)).squeeze(2) + held * (found - centre)
        bend = p.mul_(1 - p).mul_(weight).add_(1e-9)
        for term in range(rows.shape[1]):  # symmetric: half of it, by products that are quicker than a narrow matrix's
            below = (rows[:, : term + 1] @ (bend * rows[:, term]).unsqueeze(2)).squeeze(2)
            curve[:, term, : term + 1] = curve[:, : term + 1, term] = below
        step = torch.linalg.solve(curve + torch.diag_embed(held), gradient).clamp(-2, 2)
        found = found - step
        if float(step.abs().max()) < 1e-4:  # the error that is left is about its square
            break
    return found


def level_for_share(z: Tensor, slope: Tensor, knots: Tensor, share: Tensor) -> Tensor:
    """(draws,) the level at which the mean of P(wrong) is the share: by Newton's method on that mean's logit, which is
    nearly linear, between bounds as in bisection. z in descending order, binned."""
    edges = _edges(len(z), [])
    part = edges.diff().double() / len(z)
    curve = slope @ bent(_bin_means(z, edges), knots).t()
    low, high = torch.full_like(share, -60.0), torch.full_like(share, 60.0)
    share = share.clamp(1e-12, 1 - 1e-12)
    level = wanted = share.logit()
    for _ in range(LEVEL_STEPS):
        p = torch.sigmoid(level[:, None] + curve)
        mean = p @ part
        low, high = torch.where(mean < share, level, low), torch.where(mean < share, high, level)
        rate = ((1 - p).mul_(p) @ part) / (mean * (1 - mean)).clamp_min(1e-300)
        step = (mean.logit(1e-300) - wanted) / rate.clamp_min(1e-6)
        moved = level - step
        moved = torch.where((moved >= low) & (moved <= high), moved, (low + high) / 2)
        if float((moved - level).abs().max()) < LEVEL_ERROR:
            return moved
        level = moved
    return level


def descending(values: Tensor) -> Tensor:
    """A copy in descending order; takes far less memory than `Tensor.sort`."""
    ordered: Tensor = torch.from_numpy(np.sort(-values.numpy()))
    return ordered.neg_()


def _floor(wrong: float, seed: int) -> Tensor:
    """(draws,) of Beta(½, ½ + wrong): the fraction of right labels still possible if none of this many is right."""
    drawn: Tensor = torch.from_numpy(numpy_generator(seed, "floor").beta(0.5, 0.5 + wrong, DRAWS))
    return drawn


def _fdr_error(fdr: float, why: str | None) -> ValueError:
    return ValueError(f"fdr = {fdr} cannot be kept: {why}; give more clean samples, or leave fdr out")


def _interval(samples: int, part: Tensor, random: torch.Generator) -> Interval:
    """The fraction of wrong labels among these, where `part` (draws,) is expected: chance widens the interval."""
    drawn = torch.binomial(torch.full_like(part, samples), part, generator=random) / samples
    estimate = float(part.mean())
    low, high = (float(drawn.quantile((1 + side * COVERAGE) / 2)) for side in (-1, 1))
    return Interval(estimate, min(low, estimate), max(high, estimate))  # of a few, all or none may be wrong


def _edges(count: int, depths: list[int]) -> Tensor:
    """Edges of bins over a sorted list, narrow at its top."""
    top = torch.arange(0, min(count, BINS), 5)
    edges: Tensor = torch.cat([top, torch.linspace(0, count, BINS).long(), torch.tensor([*depths, count])]).unique()
    return edges


def _bin_means(values: Tensor, edges: Tensor) -> Tensor:
    sums = np.add.reduceat(values.numpy(), edges[:-1].numpy())
    return torch.from_numpy(sums) / edges.diff()


def _depths(count: int) -> list[int]:
    """Depths to report: 10, 20, 50, 100, … and all."""
    steps = [base * 10**power for power in range(1, 9) for base in (1, 2, 5)]
    return [*(step for step in steps if step < count), count]

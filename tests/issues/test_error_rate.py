"""How many labels are wrong, and how many of the listed ones: stated, and held against the truth."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor

from mslg.issues.error_rate import (
    DRAWS,
    GROUPS,
    NOT_HELD_OUT,
    TOO_FEW_PAIRS,
    Calibration,
    ErrorRate,
    Interval,
    _depths,
    _edges,
    bent,
    check_fdr,
    estimate_error_rate,
    in_groups,
    level_for_share,
    logistic_slope,
    missing_evidence,
)
from mslg.issues.evidence import Evidence, Predictions, VerifiedSamples
from mslg.issues.posterior import FEWEST, FittedPosterior, bayes_rule, fit_posterior
from mslg.issues.statement import TOO_FEW_PER_CLASS
from mslg.issues.wrong_share import class_weights


def noise(rate: float, classes: int = 4) -> Tensor:
    return torch.full((classes, classes), rate / (classes - 1), dtype=torch.float64).fill_diagonal_(1 - rate)


class World(NamedTuple):
    """Training and clean samples of which everything is known."""

    evidence: Evidence
    predictions: Predictions
    probs: Tensor  # of the training samples, by the finished network
    true: Tensor

    @property
    def given(self) -> Tensor:
        return self.predictions.given

    @property
    def held_out(self) -> VerifiedSamples:
        assert self.evidence.held_out is not None
        return self.evidence.held_out

    def with_evidence(self, **changes: Any) -> World:
        return self._replace(evidence=replace(self.evidence, **changes))

    def sorted(self) -> tuple[FittedPosterior, Tensor, Tensor]:
        """The posterior, the log odds in descending order, and whether each label is wrong."""
        fitted = fit_posterior(self.predictions, self.evidence)
        odds, order = fitted.posterior.log_odds(self.probs, self.given).sort(descending=True, stable=True)
        return fitted, odds, (self.given != self.true)[order]

    def judged(self) -> tuple[ErrorRate, Tensor, Tensor]:
        """The estimate, the log odds in descending order, and whether each label is wrong."""
        fitted, odds, wrong = self.sorted()
        return estimate_error_rate(fitted, odds, self.predictions, self.evidence), odds, wrong


def predictions_of(given: Tensor, probs: Tensor, predicted_in_training: Tensor | None = None) -> Predictions:
    classes = [str(number) for number in range(probs.shape[1])]
    return Predictions(
        given, classes, probs.__getitem__, lambda positions: [], predicted_in_training=predicted_in_training
    )


def world(
    seed: int,
    transition: Tensor = noise(0.3),  # noqa: B008
    *,
    samples: int = 1200,
    clean: int = 400,
    pairs: bool = True,
    shares: list[float] | None = None,
    balanced: bool = False,
) -> World:
    """Predictions are surer than they should be, and surer yet of what the network has been trained on. Of the clean
    samples, which are a fair draw or balanced, two fifths are held out; with or without the labels they were given."""
    random = torch.Generator().manual_seed(seed)
    classes = len(transition)

    def draw(count: int) -> tuple[Tensor, Tensor, Tensor]:
        logits = 2.5 * torch.randn(count, classes, generator=random, dtype=torch.float64)
        if shares is not None:
            logits += torch.tensor(shares).log()
        true = torch.multinomial(logits.softmax(1), 1, generator=random).squeeze(1)
        given = torch.multinomial(transition[true], 1, generator=random).squeeze(1)
        return 1.5 * logits, given, true

    logits, given, true = draw(samples)
    memorised = (logits + 2 * F.one_hot(given, classes)).softmax(1).half()
    predictions = predictions_of(given, logits.softmax(1).float(), logits.argmax(1))
    if balanced:
        pool = draw(30 * clean)
        each = torch.cat([(pool[2] == label).nonzero().flatten()[: clean // classes] for label in range(classes)])
        chosen = each[torch.randperm(len(each), generator=random)]
        parts = [part[chosen] for part in pool]
    else:
        parts = list(draw(clean))
    first = round(0.4 * len(parts[2]))
    held, steering = ([part[:first] for part in parts], [part[first:] for part in parts])
    unknown = torch.full((first,), -1)
    held_given = held[1] if pairs else unknown
    held_out = VerifiedSamples(held[0].softmax(1).float(), held_given, held[2], torch.arange(first))
    evidence = Evidence(held_out, (steering[1], steering[2]) if pairs else None, seed=seed)
    return World(evidence, predictions, memorised, true)


def calibration(seed: int = 0, samples: int = 200) -> tuple[Calibration, Tensor]:
    """Any draws, and odds from the highest to the lowest."""
    random = torch.Generator().manual_seed(seed)
    odds = (3 * torch.randn(samples, generator=random, dtype=torch.float64) - 2).sort(descending=True).values
    slope, level = (torch.rand(DRAWS, generator=random, dtype=torch.float64) for _ in range(2))
    floor, share = (0.2 * torch.rand(DRAWS, generator=random, dtype=torch.float64) for _ in range(2))
    slopes = torch.stack([1 + slope, 0.3 * level, -0.3 * slope], 1)
    return Calibration(-1.7, 2.8, slopes, level - 2, floor, share, torch.tensor([-0.2, 0.9]).double(), seed), odds


def chances(of: Calibration, odds: float) -> list[float]:
    """P(wrong) in each draw, by the formula."""
    z = (odds - of.mean) / of.spread
    draws = zip(of.slope.tolist(), of.level.tolist(), of.floor.tolist(), strict=True)
    above = [max(0.0, z - knot) for knot in of.knots.tolist()]
    found = []
    for (slope, one, two), level, floor in draws:
        found.append((1 - floor) / (1 + math.exp(-(level + slope * z + one * above[0] + two * above[1]))))
    return found


def test_the_chance_of_a_wrong_label_is_the_formula() -> None:
    found, odds = calibration()
    chance = found.probability_wrong(odds)
    for value, each in zip(chance.tolist(), odds.tolist(), strict=True):
        draws = chances(found, each)
        assert value == pytest.approx(sum(draws) / DRAWS, abs=1e-5)
    assert (chance.diff() <= 0).all(), "higher odds, higher chance"
    assert torch.allclose(
        found.probability_wrong(torch.full((3,), 1.5).double()),
        found.probability_wrong(torch.tensor([1.5, -9.0]).double())[0],
    )


def test_precision_is_the_mean_chance_of_the_first_so_many() -> None:
    found, odds = calibration()
    depths = [1, 2, 7, 50, 123, 200]
    by_hand = [chances(found, each) for each in odds.tolist()]
    told = found.precision(odds, depths)
    for depth, interval in zip(depths, told, strict=True):
        expected = sum(sum(draws) for draws in by_hand[:depth]) / (depth * DRAWS)
        assert interval.estimate == pytest.approx(expected, rel=1e-9)
        assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    estimates = [interval.estimate for interval in told]
    assert estimates == sorted(estimates, reverse=True), "the longer the list, the more of it is right"
    assert found.precision(odds, depths) == told, "the same whenever it is asked"


def test_precision_of_a_long_list_is_as_exact_as_it_need_be() -> None:
    found, odds = calibration(samples=30_000)
    depths = [10, 13, 1000, 1001, 12_345, 30_000]
    exact = found.draws(odds).mean(0).cumsum(0)
    for depth, interval in zip(depths, found.precision(odds, depths), strict=True):
        assert interval.estimate == pytest.approx(float(exact[depth - 1]) / depth, abs=1e-3)


def test_the_interval_holds_what_chance_can_do() -> None:
    """Even with all draws alike: of ten with even chances, not always five are wrong."""
    same = {name: torch.zeros(DRAWS, dtype=torch.float64) for name in ("level", "floor")}
    same |= {"slope": torch.zeros(DRAWS, 3, dtype=torch.float64), "knots": torch.zeros(2, dtype=torch.float64)}
    sure = Calibration(0.0, 1.0, **same, share=torch.full((DRAWS,), 0.5, dtype=torch.float64))
    odds = torch.zeros(1000, dtype=torch.float64)
    ten, thousand = sure.precision(odds, [10, 1000])
    assert ten.estimate == thousand.estimate == 0.5
    assert (ten.low, ten.high) == pytest.approx((0.2, 0.8), abs=0.11)
    assert (thousand.low, thousand.high) == pytest.approx((0.474, 0.526), abs=0.02)
    assert sure.wrong_share(1000).high == pytest.approx(0.526, abs=0.02)
    (one,) = sure.precision(odds, [1])
    assert (one.low, one.high) == (0.0, 1.0)


@pytest.mark.parametrize("expected", [0.3, 2.0, 8.0])
def test_the_slope_is_that_of_a_logistic_regression(expected: float) -> None:
    random = torch.Generator().manual_seed(3)
    z = torch.randn(12, 90, generator=random, dtype=torch.float64)
    wrong = (torch.rand(90, generator=random) < torch.sigmoid(2.5 * z[0] - 1)).double()
    wrong[:4] = torch.tensor([1.0, 1.0, 0.0, 0.0])
    weight = torch.empty(12, 90, dtype=torch.float64).exponential_(generator=random)
    knot = torch.tensor([0.5], dtype=torch.float64)
    centre = torch.stack([torch.full((12,), expected), torch.linspace(-1, 1, 12)], 1).double()
    spread = torch.tensor([1.0, 0.5], dtype=torch.float64).mul(expected).expand(12, 2)
    found = logistic_slope(bent(z, knot), wrong, weight, centre, spread)
    for row in range(12):

        def loss(parameters: Any, row: int = row) -> float:
            level, slope, bend = parameters
            logits = level + slope * z[row] + bend * (z[row] - 0.5).clamp_min(0)
            likelihood = (weight[row] * F.binary_cross_entropy_with_logits(logits, wrong, reduction="none")).sum()
            held = [(slope - expected) / expected, (bend - float(centre[row, 1])) / (0.5 * expected)]
            return float(likelihood) + sum(each**2 for each in held) / 2 + 1e-3 * level**2 / 2

        start = [0.0, expected, float(centre[row, 1])]
        best = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000})
        assert found[row].tolist() == pytest.approx([max(best.x[1], 0.01), best.x[2]], abs=2e-3)


def test_neighbours_that_count_as_one_hardly_change_the_slope() -> None:
    random = torch.Generator().manual_seed(5)
    odds = 3 * torch.randn(3000, generator=random, dtype=torch.float64)
    wrong = (torch.rand(3000, generator=random) < torch.sigmoid(0.8 * odds - 1)).double()
    weight = torch.empty(4, 3000, dtype=torch.float64).exponential_(generator=random)
    knots, prior = torch.tensor([0.3, 2.0], dtype=torch.float64), torch.ones(4, 3, dtype=torch.float64)
    each = logistic_slope(bent(odds.expand(4, -1), knots), wrong, weight, prior, prior)
    means, of_wrong, of_all = in_groups(odds, weight * wrong, weight)
    assert len(means) <= GROUPS < len(odds)
    for row, group in ((0, 0), (3, 7)):
        size = -(-len(odds) // GROUPS)
        members = odds.argsort()[group * size : (group + 1) * size]
        assert float(means[group]) == pytest.approx(sum(float(odds[at]) for at in members) / len(members))
        assert float(of_all[row, group]) == pytest.approx(sum(float(weight[row, at]) for at in members))
        assert float(of_wrong[row, group]) == pytest.approx(sum(float(weight[row, at] * wrong[at]) for at in members))
    grouped = logistic_slope(bent(means.expand(4, -1), knots), of_wrong / of_all, of_all, prior, prior)
    assert (grouped - each).abs().max() < (each - each.mean(0)).abs().max() / 10, "far less than draws differ by"
    few = odds[:20]
    assert in_groups(few, weight[:, :20])[0] is few


@pytest.mark.parametrize("wrong", ["none", "all", "one", "apart"])
def test_the_slope_is_finite_where_plain_regression_has_none(wrong: str) -> None:
    z = torch.linspace(-2, 2, 60, dtype=torch.float64).expand(5, -1)
    labels = {"none": z[0] > 9, "all": z[0] > -9, "one": z[0] >= 2, "apart": z[0] > 0}[wrong].double()
    expected = torch.tensor([1e-6, 0.1, 1.0, 5.0, 12.0], dtype=torch.float64)
    centre = expected.unsqueeze(1)
    found = logistic_slope(z.unsqueeze(2), labels, torch.ones(5, 60, dtype=torch.float64), centre, centre).squeeze(1)
    assert torch.isfinite(found).all()
    assert (found >= 0.01).all()
    assert (found <= 4 * expected + 0.05).all(), "held near what is expected"


def test_the_level_gives_the_share() -> None:
    random = torch.Generator().manual_seed(0)
    for samples in (2, 30, 20_000):
        z = torch.randn(samples, generator=random, dtype=torch.float64).sort(descending=True).values
        slope = torch.rand(40, 3, generator=random, dtype=torch.float64) * torch.tensor([3.0, 1.0, -1.0])
        knots = torch.tensor([0.3, 1.2], dtype=torch.float64)
        share = torch.rand(40, generator=random, dtype=torch.float64).clamp(1e-3, 1 - 1e-3)
        level = level_for_share(z, slope, knots, share)
        found = torch.sigmoid(level[:, None] + slope @ bent(z, knots).t()).mean(1)
        assert torch.allclose(found, share, atol=1e-4)


def test_the_level_is_found_under_steep_curves_and_for_any_share() -> None:
    z = torch.randn(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64).sort(descending=True).values
    share = torch.tensor([0.0, 1e-9, 1e-3, 0.3, 0.999, 1.0], dtype=torch.float64).repeat(3)
    slope = torch.tensor([[0.0], [3.0], [12.0]], dtype=torch.float64).repeat_interleave(6, 0)
    knots = torch.zeros(0, dtype=torch.float64)
    level = level_for_share(z, slope, knots, share)
    found = torch.sigmoid(level[:, None] + slope @ bent(z, knots).t()).mean(1)
    assert torch.allclose(found, share, atol=1e-9, rtol=1e-6)


def test_bins_and_depths() -> None:
    for count in (1, 2, 9, 10, 999, 5000, 123_456):
        edges = _edges(count, [1, count])
        assert (int(edges[0]), int(edges[-1])) == (0, count)
        assert (edges.diff() > 0).all()
        depths = _depths(count)
        assert depths[-1] == count
        assert depths == sorted(set(depths))
    assert _depths(300) == [10, 20, 50, 100, 200, 300]
    assert _depths(10) == [10]
    assert _depths(3) == [3]


def told(rate: ErrorRate, odds: Tensor, depths: tuple[int, ...]) -> list[Interval]:
    assert rate.calibration is not None
    return [rate.calibration.wrong_share(len(odds)), *rate.calibration.precision(odds, list(depths))]


@pytest.mark.parametrize(
    ("pairs", "repeated", "largest"), [(True, 40, (0.03, 0.05, 0.06)), (False, 24, (0.045, 0.06, 0.08))]
)
def test_nine_of_ten_statements_hold(pairs: bool, repeated: int, largest: tuple[float, ...]) -> None:
    depths = (40, 160)
    held, missed = torch.zeros(3), torch.zeros(3)
    for seed in range(repeated):
        rate, odds, wrong = world(seed, pairs=pairs, samples=500).judged()
        assert rate.basis == ("pairs" if pairs else "injected")
        assert rate.held_out == 160
        truth = [float(wrong[:depth].double().mean()) for depth in (len(odds), *depths)]
        for place, (interval, value) in enumerate(zip(told(rate, odds, depths), truth, strict=True)):
            held[place] += interval.low - 1e-9 <= value <= interval.high + 1e-9
            missed[place] += abs(interval.estimate - value)
    assert held.min() >= 0.75 * repeated, f"{held.tolist()} of {repeated} held"
    assert (missed / repeated < torch.tensor(largest)).all(), f"off by {(missed / repeated).tolist()}"


def test_the_mean_chance_of_all_is_the_share() -> None:
    """The statements about the list and about all labels must not contradict each other."""
    for rate in (0.02, 0.3):
        found, odds, _ = world(1, noise(rate)).judged()
        share, everything = told(found, odds, (len(odds),))
        assert everything.estimate == pytest.approx(share.estimate, rel=0.02)
        assert found.calibration is not None
        assert float(found.calibration.probability_wrong(odds).mean()) == pytest.approx(share.estimate, rel=0.03)


def test_no_label_is_wrong() -> None:
    found, odds, wrong = world(0, noise(0.0)).judged()
    assert not wrong.any()
    share, first, everything = told(found, odds, (10, len(odds)))
    assert share.low < 0.005
    assert share.high < 0.02, "400 clean samples without a wrong one"
    assert first.estimate < 0.3
    assert everything.estimate < 0.01
    assert found.length_for_fdr(odds, 0.1) == 0


def test_every_label_is_wrong() -> None:
    found, odds, wrong = world(0, noise(1.0)).judged()
    assert wrong.all()
    share, first = told(found, odds, (50,))
    assert share.low > 0.97
    assert first.estimate > 0.97
    assert found.length_for_fdr(odds, 0.1) == len(odds)


def test_one_wrong_label_among_the_held_out() -> None:
    made = world(0, noise(0.0))
    given = made.held_out.given.clone()
    given[0] = (given[0] + 1) % 4
    found, odds, _ = made.with_evidence(held_out=made.held_out._replace(given=given)).judged()
    share, first = told(found, odds, (10,))
    assert 0 <= share.low < 1 / 400 < share.high < 0.02
    assert 0 <= first.low <= first.estimate <= first.high < 0.5


def test_odds_that_are_all_equal_say_nothing_more_than_the_share() -> None:
    made = world(0)
    flat = made.with_evidence(held_out=made.held_out._replace(probs=torch.full_like(made.held_out.probs, 0.25)))
    fitted = fit_posterior(flat.predictions, flat.evidence)
    fitted = replace(fitted, log_odds=torch.zeros(160, dtype=torch.float64))
    odds = torch.full((1200,), 0.7, dtype=torch.float64)
    found = estimate_error_rate(fitted, odds, flat.predictions, flat.evidence)
    share, first, everything = told(found, odds, (20, 1200))
    assert first.estimate == pytest.approx(share.estimate, rel=0.02)
    assert everything.estimate == pytest.approx(share.estimate, rel=0.02)
    assert found.calibration is not None
    assert torch.allclose(found.calibration.probability_wrong(odds), torch.tensor(share.estimate).double(), rtol=0.02)


@pytest.mark.parametrize("samples", [2, 3, 7])
def test_short_lists(samples: int) -> None:
    found, odds, _ = world(0, samples=samples).judged()
    assert found.samples == samples
    text = json.dumps(found.summary(odds, odds > odds[-1], 0.1))
    assert "NaN" not in text
    assert 0 <= found.length_for_fdr(odds, 0.3) <= samples


def test_a_class_that_no_held_out_sample_has() -> None:
    for pairs in (True, False):
        made = world(0, pairs=pairs)
        held_out = made.held_out.at((made.held_out.verified != 3) & (made.held_out.given != 3))
        held_out = held_out._replace(sample=torch.arange(len(held_out.given)))
        found, odds, wrong = made.with_evidence(held_out=held_out).judged()
        (share, first) = told(found, odds, (50,))
        assert math.isfinite(first.estimate)
        assert share.low - 0.1 < float(wrong.double().mean()) < share.high + 0.1


def test_many_classes_with_few_samples_each() -> None:
    found, odds, wrong = world(0, noise(0.3, 30), clean=300).judged()
    share, first = told(found, odds, (50,))
    assert abs(share.estimate - float(wrong.double().mean())) < 0.06
    assert first.estimate > share.estimate
    assert abs(first.estimate - float(wrong[:50].double().mean())) < 0.2
    # Without pairs 900 entries of a matrix would be asked of the held-out samples, fewer than 10 a class.
    found = world(0, noise(0.3, 30), clean=300, pairs=False).judged()[0]
    assert (found.basis, found.why, found.calibration) == ("none", TOO_FEW_PER_CLASS, None)


UNEVEN = torch.tensor(
    [[0.6, 0.4 / 3, 0.4 / 3, 0.4 / 3], [0.05, 0.85, 0.05, 0.05], [0.05, 0.05, 0.85, 0.05], [0.05, 0.05, 0.05, 0.85]],
    dtype=torch.float64,
)  # most wrong labels are in the class that is rare among balanced samples


def test_clean_samples_in_other_class_shares_are_weighed_by_class() -> None:
    missed, plain = [], []
    for seed in range(8):
        made = world(seed, UNEVEN, shares=[0.85, 0.1, 0.03, 0.02], balanced=True)
        found, odds, wrong = made.judged()
        truth = float(wrong.double().mean())
        missed.append(told(found, odds, ())[0].estimate - truth)
        assert made.evidence.pairs is not None
        given, verified = (torch.cat(parts) for parts in zip(made.held_out[1:3], made.evidence.pairs, strict=True))
        plain.append(float((given != verified).double().mean()) - truth)
    off, off_plain = (sum(map(abs, each)) / len(each) for each in (missed, plain))
    assert off_plain > 0.06, "balanced samples show fewer wrong labels than there are"
    assert off < 0.6 * off_plain


def test_clean_samples_drawn_fairly_are_not_weighed() -> None:
    fair, balanced = (world(3, UNEVEN, shares=[0.85, 0.1, 0.03, 0.02], balanced=each) for each in (False, True))
    assert (class_weights(*fair.held_out[1:3], fair.predictions) == 1).all()
    weights = class_weights(*balanced.held_out[1:3], balanced.predictions)
    common, rare = (weights[balanced.held_out.verified == label] for label in (0, 3))
    assert common.min() > 1 > rare.max()
    # A class that the training set lacks, in one clean sample of many, is no sign of another draw.
    label = torch.arange(300) % 3
    clean = torch.cat([torch.arange(99) % 3, torch.tensor([3])])
    assert (class_weights(clean, clean, predictions_of(label, torch.empty(300, 4))) == 1).all()


HIDDEN = torch.tensor(
    [[0.34, 0.22, 0.22, 0.22], [0.04, 0.88, 0.04, 0.04], [0.04, 0.04, 0.88, 0.04], [0.04, 0.04, 0.04, 0.88]],
    dtype=torch.float64,
)  # spreads a frequent class until the given labels look even


def test_a_method_s_own_class_shares_tell_what_given_labels_hide() -> None:
    errors: dict[bool, list[float]] = {True: [], False: []}
    held = 0
    for seed in range(8):
        made = world(seed, HIDDEN, shares=[0.9, 0.03, 0.04, 0.03], balanced=True)
        truth = float((made.given != made.true).double().mean())
        shift = (4 * made.true.bincount(minlength=4).double() / len(made.true)).log()
        for known in errors:
            found, odds, _ = made.with_evidence(class_shift=shift if known else None).judged()
            (stated,) = told(found, odds, ())
            errors[known].append(abs(stated.estimate - truth))
            held += known and stated.low <= truth <= stated.high
    known, unknown = (sum(errors[each]) / 8 for each in (True, False))
    assert known < 0.045
    assert unknown > 0.08, "the given labels show little of it"
    assert held >= 6


def test_after_a_review_the_statement_is_about_what_is_left() -> None:
    held: dict[bool, int] = {True: 0, False: 0}
    for seed in range(6):
        made = world(seed, noise(0.1), samples=4000)
        fitted, odds, wrong = made.sorted()
        order = fitted.posterior.log_odds(made.probs, made.given).argsort(descending=True, stable=True)
        left = predictions_of(made.given[order[200:]], made.probs[order[200:]])
        share = float(wrong[200:].double().mean())
        for told_of in (True, False):
            reviewed = {"reviewed": 200, "reviewed_wrong": int(wrong[:200].sum())} if told_of else {}
            evidence = replace(made.evidence, **reviewed)
            found = estimate_error_rate(fitted, odds[200:], left, evidence).calibration
            assert found is not None
            low, high = found.wrong_share(3800)[1:]
            held[told_of] += low <= share <= high
    assert held[True] >= 5
    assert held[False] <= 2, "what was found is still counted"


def test_a_review_that_found_more_than_was_to_be_expected_leaves_few() -> None:
    made = world(0, noise(0.1))
    found, odds, _ = made.with_evidence(reviewed=300, reviewed_wrong=300).judged()
    share, everything = told(found, odds, (len(odds),))
    assert 0 <= share.low <= share.estimate < 0.01
    assert everything.estimate < 0.01


def test_the_same_seed_gives_the_same_statement() -> None:
    made = world(5)
    flagged = made.judged()[1] > 0
    first, second = (made.judged()[0].summary(made.judged()[1], flagged, None) for _ in range(2))
    assert first == second
    other = made.with_evidence(seed=6).judged()
    assert other[0].summary(other[1], flagged, None) != first


def test_what_each_basis_needs() -> None:
    made = world(0)
    assert missing_evidence(made.held_out.given, pairs=True, classes=4) is None
    assert made.judged()[0].why is None
    assert missing_evidence(torch.empty(0), pairs=True, classes=4) == NOT_HELD_OUT
    rate = without_held_out(made)
    assert (rate.basis, rate.held_out, rate.why, rate.calibration) == ("none", 0, NOT_HELD_OUT, None)
    assert "200 clean samples" in NOT_HELD_OUT
    for known in (FEWEST - 1, FEWEST):
        given = torch.where(torch.arange(160) < known, made.held_out.given, -1)
        rate = made.with_evidence(held_out=made.held_out._replace(given=given)).judged()[0]
        assert (rate.basis, rate.why) == (("pairs", None) if known == FEWEST else ("none", TOO_FEW_PAIRS))
        assert missing_evidence(given, pairs=True, classes=4) == rate.why
        assert rate.held_out == (known if known == FEWEST else 0)
    apart = world(0, pairs=False)
    assert missing_evidence(apart.held_out.given, pairs=False, classes=4) is None
    assert apart.judged()[0].basis == "injected"


def without_held_out(made: World) -> ErrorRate:
    alone = replace(made.evidence, held_out=None)
    fitted = FittedPosterior(bayes_rule(noise(0.3)), "none")
    return estimate_error_rate(fitted, torch.zeros(9), made.predictions, alone)


def test_without_a_statement_no_list_can_be_kept_to_an_error_rate() -> None:
    rate = without_held_out(world(0))
    advice = r"fdr = 0\.1 cannot be kept: no clean samples are held out.*; give more clean samples, or leave fdr out"
    with pytest.raises(ValueError, match=advice):
        rate.length_for_fdr(torch.zeros(9), 0.1)
    with pytest.raises(ValueError, match=advice):
        check_fdr(0.1, rate.why)
    check_fdr(0.1, None)
    for fdr in (0.0, 1.0, -0.1, 10.0, math.nan):
        with pytest.raises(ValueError, match=f"fdr is {fdr}; it must be between 0 and 1"):
            check_fdr(fdr, None)
    assert rate.summary(torch.zeros(9), torch.zeros(9, dtype=torch.bool), None) == {
        "basis": "none",
        "samples": 0,
        "fdr": None,
        "why": NOT_HELD_OUT,
    }


def test_a_list_is_cut_where_its_error_rate_is_reached() -> None:
    for seed in range(4):
        rate, odds, wrong = world(seed).judged()
        assert rate.calibration is not None
        depths = [rate.length_for_fdr(odds, fdr) for fdr in (0.02, 0.05, 0.1, 0.2, 0.4)]
        assert depths == sorted(depths)
        for fdr, depth in zip((0.1, 0.2, 0.4), depths[2:], strict=True):
            assert depth > 5
            told_there, told_after = rate.calibration.precision(odds, [depth, min(depth + 15, len(odds))])
            assert told_after.estimate < 1 - fdr <= told_there.estimate
            assert 1 - float(wrong[:depth].double().mean()) < fdr + 0.12


def test_the_statement_as_json() -> None:
    rate, odds, _ = world(0).judged()
    flagged = torch.zeros(1200, dtype=torch.bool)
    flagged[:250:2] = True
    found = rate.summary(odds, flagged, 0.1)
    assert list(found) == ["basis", "samples", "fdr", "why", "share", "count", "precision", "flagged"]
    assert found == json.loads(json.dumps(found, allow_nan=False))
    assert (found["basis"], found["samples"], found["fdr"], found["why"]) == ("pairs", 160, 0.1, None)
    for name in ("share", "count"):
        assert list(found[name]) == ["estimate", "low", "high"]
    assert found["count"]["estimate"] == pytest.approx(1200 * found["share"]["estimate"])
    assert [list(step) for step in found["precision"]] == [["depth", "estimate", "low", "high"]] * 8
    assert [step["depth"] for step in found["precision"]] == [10, 20, 50, 100, 200, 500, 1000, 1200]
    assert found["flagged"]["depth"] == 125
    assert rate.calibration is not None
    among = rate.calibration.probability_wrong(odds[flagged]).mean()
    assert found["flagged"]["estimate"] == pytest.approx(float(among), abs=1e-3)
    assert rate.summary(odds, flagged & False, None)["flagged"] == {"depth": 0}


def test_a_million_labels_take_no_time() -> None:
    made = world(0)
    fitted = fit_posterior(made.predictions, made.evidence)
    odds = 3 * torch.randn(1_000_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    begun = time.process_time()
    rate = estimate_error_rate(fitted, odds, made.predictions, made.evidence)
    ordered = odds.sort(descending=True).values
    depth = rate.length_for_fdr(ordered, 0.2)
    assert rate.calibration is not None
    rate.calibration.probability_wrong(odds)
    rate.summary(ordered, torch.arange(1_000_000) < depth, 0.2)
    assert time.process_time() - begun < 3

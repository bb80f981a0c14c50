"""Who was better, by how much, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from mslg.runs.controls.verdict import Answers, judge, not_compared, paired_interval


def answers(both: int, first: int, second: int, neither: int) -> tuple[Tensor, Tensor]:
    """Right answers of two, by how many samples both, only the first, only the second and neither got right."""
    left = [True] * (both + first) + [False] * (second + neither)
    right = [True] * both + [False] * first + [True] * second + [False] * neither
    return torch.tensor(left), torch.tensor(right)


def control(name: str, right: Tensor, select: float) -> Answers:
    return Answers(name, f"words of {name}", right, select, f"--method {name}")


def test_a_method_that_is_better_than_every_control_has_helped() -> None:
    own, best = answers(160, 30, 5, 5)
    other, _ = answers(150, 0, 0, 50)
    result = judge("mine", own, [control("best", best, 0.9), control("other", other, 0.8)], select=150)
    assert result["helped"] is True
    assert result["verdict"].startswith(
        "It helped: +12.5 points. mine was right on 95.0 % of 200 held-out clean samples; the best control (chosen on "
        "150 others), words of best, on 82.5 %: difference +12.5 points (90 % interval +"
    )
    assert result["verdict"].endswith(", and every other control was worse too")
    assert (result["samples"], result["best"]) == (200, "best")
    assert result["accuracy"] == pytest.approx(0.95)
    row = result["controls"][0]
    assert (row["name"], row["words"], row["accuracy"]) == ("best", "words of best", pytest.approx(0.825))
    assert 0 < row["low"] < row["difference"] == pytest.approx(0.125)
    assert row["difference"] < row["high"] < 1


def test_a_control_that_is_better_is_recommended() -> None:
    own, best = answers(160, 5, 30, 5)
    result = judge("mine", own, [control("plain", best, 0.9)], select=150)
    assert result["helped"] is False
    assert result["verdict"].startswith(
        "It did not help: -12.5 points. mine was right on 82.5 % of 200 held-out clean samples;"
    )
    assert "on 97.5 %" not in result["verdict"]
    assert "on 95.0 %: better by 12.5 points (90 % interval " in result["verdict"]
    assert result["verdict"].endswith("; use it instead with --method plain")
    low, high = paired_interval(best, own)
    assert f"({'90 % interval'} {100 * low:.1f} to {100 * high:.1f})" in result["verdict"]


def test_a_small_difference_is_not_called_one() -> None:
    own, best = answers(180, 8, 5, 7)
    result = judge("mine", own, [control("plain", best, 0.9)], select=150)
    assert result["helped"] is None
    assert "difference +1.5 points (90 % interval -" in result["verdict"]
    assert result["verdict"].startswith("No difference shown. mine was right on 94.0 %")
    assert "significant" not in result["verdict"]


def test_the_best_control_is_chosen_on_select_and_not_on_the_samples_that_report() -> None:
    own, lucky = answers(160, 5, 30, 5)
    _, chosen = answers(160, 5, 6, 29)
    result = judge("mine", own, [control("lucky", lucky, 0.8), control("chosen", chosen, 0.9)], select=150)
    assert (result["best"], result["helped"]) == ("chosen", None)
    tied = judge("mine", own, [control("first", lucky, 0.8), control("second", chosen, 0.8)], select=150)
    assert tied["best"] == "second", "of two that are equally good, the one that is stronger as a rule"


def test_no_gain_is_claimed_while_any_control_is_as_good() -> None:
    own, chosen = answers(160, 30, 5, 5)
    result = judge("mine", own, [control("same", own, 0.8), control("chosen", chosen, 0.9)], select=150)
    assert (result["best"], result["helped"]) == ("chosen", None)
    assert result["verdict"].endswith(", but words of same did at least as well: no gain is shown")


def test_without_controls_nothing_is_compared() -> None:
    result = judge("mine", torch.ones(40, dtype=torch.bool), [], select=40)
    assert result == not_compared("no control could be trained")
    assert (result["helped"], result["samples"], result["controls"]) == (None, 0, [])


@pytest.mark.parametrize("counts", [(160, 20, 10, 10), (60, 12, 22, 6), (900, 40, 20, 40)])
def test_the_interval_agrees_with_a_bootstrap_over_samples(counts: tuple[int, int, int, int]) -> None:
    left, right = answers(*counts)
    difference = (left.double() - right.double()).numpy()
    random = np.random.default_rng(0)
    drawn = [difference[random.integers(0, len(left), len(left))].mean() for _ in range(4000)]
    assert paired_interval(left, right) == pytest.approx(np.quantile(drawn, [0.05, 0.95]), abs=0.012)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    for only_first, only_second in ((0.15, 0.1), (0.05, 0.05), (0.02, 0.0)):
        hit = 0
        for _ in range(2000):
            place = random.random(40)
            left = torch.from_numpy(place < only_first)
            right = torch.from_numpy((place >= only_first) & (place < only_first + only_second))
            low, high = paired_interval(left, right)
            hit += low <= only_first - only_second <= high
        assert hit / 2000 > 0.87


def test_no_sample_that_differs_still_leaves_doubt() -> None:
    same = torch.ones(40, dtype=torch.bool)
    low, high = paired_interval(same, same)
    assert -0.1 < low < -0.03
    assert high == pytest.approx(-low)
    assert paired_interval(same, ~same)[1] <= 1

"""Whether it is said that a network has memorised its labels, or that nobody knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mslg
from mslg.issues.evidence import Evidence, VerifiedSamples
from mslg.issues.memorised import Memorised, memorised
from tests.support.blobs import blobs


def judged(
    agreeing: int,
    right: int,
    *,
    sure: float = 0.9,
    clean: int = 50,
    held_out: bool = True,
    needs: tuple[str, ...] = (),
    **method: Any,
) -> Memorised:
    """About 100 training samples of 4 classes, of whose given labels so many are predicted, and clean samples."""
    label = torch.arange(100) % 4
    final = torch.eye(4)[torch.where(torch.arange(100) < agreeing, label, (label + 1) % 4)]
    history: Any = SimpleNamespace(final=final, said=lambda index: final[index], classes=4)
    verified = torch.arange(clean) % 4
    data: Any = SimpleNamespace(train=_Train(label), unbiased_clean=verified, drawn_clean=verified)
    predicted = torch.where(torch.arange(clean) < right, verified, (verified + 1) % 4)
    probs = torch.full((clean, 4), (1 - sure) / 3).scatter(1, predicted.unsqueeze(1), sure)
    samples = VerifiedSamples(probs, torch.full_like(verified, -1), verified, torch.arange(clean))
    evidence = Evidence(samples) if held_out else Evidence(in_sample=samples)
    kind: Any = SimpleNamespace(**{"needs": frozenset(needs), "cross_fits": False, "trains_on_noisy": True} | method)
    return memorised(history, data, evidence, kind)


class _Train:
    def __init__(self, label: torch.Tensor) -> None:
        self.label, self.index = label, torch.arange(len(label))

    def __len__(self) -> int:
        return len(self.label)


def test_agreement_far_above_clean_accuracy_is_said() -> None:
    told = judged(agreeing=98, right=30).warning
    assert told is not None
    assert (
        "agrees with 98 % of the labels it was trained on but is right on 60 % of 50 clean samples it has not" in told
    )


@pytest.mark.parametrize(("agreeing", "right"), [(60, 45), (90, 46), (75, 40), (90, 32)])
def test_learning_is_not_called_memorising(agreeing: int, right: int) -> None:
    assert judged(agreeing, right) == Memorised()


def test_a_loss_near_chance_is_said() -> None:
    told = judged(agreeing=30, right=15, sure=0.3).warning
    assert told is not None
    assert "is 1.38, and that of guessing is 1.39" in told


def test_clean_samples_that_the_method_ignores_are_as_good_as_held_out() -> None:
    assert judged(98, 30, held_out=False) == judged(98, 30)
    assert judged(90, 46, held_out=False) == Memorised()


def test_what_is_wrong_on_clean_samples_that_were_trained_on_is_wrong_on_new_ones() -> None:
    told = judged(98, 30, held_out=False, needs=("clean set",)).warning
    assert told is not None
    assert "is right on 60 % of 50 clean samples that it was trained on: it has memorised" in told


def test_clean_samples_that_were_trained_on_cannot_show_that_all_is_well() -> None:
    told = judged(98, 50, held_out=False, needs=("clean set",))
    assert told.warning is None
    assert told.unknown == (
        "it agrees with 98 % of the labels it was trained on, and all 50 clean samples were trained on too; give 200, "
        "of which some are held out, or use a method that cross-fits"
    )
    few = judged(98, 3, clean=10)
    assert few.warning is None
    assert few.unknown is not None
    assert "it takes 20 clean samples to compare that with (10 there); check 100 random samples" in few.unknown


@pytest.mark.parametrize("method", [{"cross_fits": True}, {"trains_on_noisy": False}])
def test_nothing_is_unknown_of_methods_whose_list_does_not_rest_on_given_labels(method: dict[str, Any]) -> None:
    assert judged(98, 50, held_out=False, needs=("clean set",), **method) == Memorised()


def test_little_agreement_is_no_memory() -> None:
    """However few new samples it would get right: of 80 % of its labels, it cannot have memorised four fifths."""
    assert judged(80, 50, held_out=False, needs=("clean set",)) == Memorised()


def test_a_run_without_held_out_clean_samples_says_so() -> None:
    """64 random columns are enough to memorise 96 labels by."""
    drawn, random = blobs(samples=96, clean=40), np.random.default_rng(0)
    noisy, clean = (
        (np.concatenate([x, random.normal(size=(len(x), 64))], 1).astype(np.float32), label)
        for x, label in ((drawn.x, drawn.given), (drawn.clean_x, drawn.clean_y))
    )
    options: dict[str, Any] = {"epochs": 100, "learning_rate": 0.2, "weight_decay": 0.0, "compare": False}
    for method, key in (("cross-entropy", "memorised"), ("noisy-plus-clean", "memorised_unknown")):
        summary = mslg.fit(network, noisy, clean, method=method, progress=False, **options).summary
        assert {name for name in summary if name.startswith("memorised")} == {key}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(66, 64), nn.ReLU(), nn.Linear(64, 4))

"""Whether it is said that a network has memorised its labels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mslg.issues.evidence import Evidence, VerifiedSamples
from mslg.issues.memorised import memorised


def said(agreeing: int, right: int, *, sure: float = 0.9, clean: int = 50) -> str | None:
    """About 100 training samples of 4 classes, of whose given labels so many are predicted, and clean samples."""
    label = torch.arange(100) % 4
    final = torch.eye(4)[torch.where(torch.arange(100) < agreeing, label, (label + 1) % 4)]
    history: Any = SimpleNamespace(final=final, said=lambda index: final[index])
    data: Any = SimpleNamespace(train=_Train(label))
    verified = torch.arange(clean) % 4
    predicted = torch.where(torch.arange(clean) < right, verified, (verified + 1) % 4)
    probs = torch.full((clean, 4), (1 - sure) / 3).scatter(1, predicted.unsqueeze(1), sure)
    held_out = VerifiedSamples(probs, torch.full_like(verified, -1), verified, torch.arange(clean))
    return memorised(history, data, Evidence(held_out))


class _Train:
    def __init__(self, label: torch.Tensor) -> None:
        self.label, self.index = label, torch.arange(len(label))

    def __len__(self) -> int:
        return len(self.label)


def test_agreement_far_above_clean_accuracy_is_said() -> None:
    told = said(agreeing=98, right=30)
    assert told is not None
    assert "agrees with 98 % of the labels it was trained on but is right on 60 % of 50 clean samples" in told


@pytest.mark.parametrize(("agreeing", "right"), [(60, 45), (90, 46), (75, 40), (90, 32)])
def test_learning_is_not_called_memorising(agreeing: int, right: int) -> None:
    assert said(agreeing, right) is None


def test_a_loss_near_chance_is_said() -> None:
    told = said(agreeing=30, right=15, sure=0.3)
    assert told is not None
    assert "is 1.38, and that of guessing is 1.39" in told


def test_too_few_clean_samples_tell_nothing() -> None:
    assert said(agreeing=98, right=3, clean=10) is None

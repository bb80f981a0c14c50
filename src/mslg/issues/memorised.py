"""Whether the finished network has memorised given labels instead of learning the classes, by clean samples that it has
not seen."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ..data.sample_table import pieces_of
from ..data.splits import Splits
from ..training.prediction_history import PredictionHistory
from .evidence import Evidence

# benchmarks/memorisation.py, 48 runs on digits and CIFAR-10 features: 17 of 18 that give at least half of their wrong
# labels back are above (.85 to 1; one has .62), none of the 30 others is (at most .67).
MOST = 0.8  # of the labels that a network would get wrong if they were new, those that it agrees with all the same
# There, all of the 30 but one (1.05, at 70 % noise) are below (at most .83).
NEAR_CHANCE = 0.95  # of the loss of a network that gives all classes the same probability
FEWEST = 20  # clean samples


class Fit(NamedTuple):
    """How a network does on its own labels, and on clean samples that it has not seen."""

    agreement: float  # with the labels that it was trained on
    right: float  # on clean samples
    loss: float  # there
    samples: int  # clean ones
    classes: int

    @property
    def excess(self) -> float:
        """Of the labels that it would get wrong if they were new, at the least that the clean samples allow, the
        fraction that it agrees with all the same."""
        right = min(1.0, self.right + 2 * math.sqrt(self.right * (1 - self.right) / self.samples))
        return (self.agreement - right) / max(1 - right, 0.5 / self.samples)

    @property
    def of_chance(self) -> float:
        """The loss, as a fraction of that of guessing."""
        return self.loss / math.log(self.classes)


def measured_fit(history: PredictionHistory, data: Splits, evidence: Evidence) -> Fit | None:
    """None if too few clean samples are held out to tell."""
    held_out = evidence.held_out
    if held_out is None or len(held_out.verified) < FEWEST or history.final is None or not len(data.train):
        return None
    samples, classes = held_out.probs.shape
    agreeing = sum(
        int((history.said(data.train.index[piece]).argmax(1) == data.train.label[piece]).sum())
        for piece in pieces_of(torch.arange(len(data.train)), classes)
    )
    probs = held_out.probs.double().gather(1, held_out.verified.unsqueeze(1)).clamp_min(1e-12)
    right = float((held_out.probs.argmax(1) == held_out.verified).double().mean())
    return Fit(agreeing / len(data.train), right, -float(probs.log().mean()), samples, classes)


def memorised(history: PredictionHistory, data: Splits, evidence: Evidence) -> str | None:
    """A sentence if training went wrong; None if it did not, or if it cannot be told."""
    fit = measured_fit(history, data, evidence)
    if fit is None:
        return None
    if fit.excess > MOST:
        return (
            f"The network agrees with {100 * fit.agreement:.0f} % of the labels it was trained on but is right on "
            f"{100 * fit.right:.0f} % of {fit.samples:,} clean samples it has not seen: it has memorised labels, wrong "
            "ones included, and the list misses those. Train for fewer epochs, or on the features of a pretrained "
            "network."
        )
    if fit.of_chance > NEAR_CHANCE:
        return (
            f"The network's loss on {fit.samples:,} clean samples it has not seen is {fit.loss:.2f}, and that of "
            f"guessing is {math.log(fit.classes):.2f}: it has learned nothing the list can rest on."
        )
    return None

"""Whether the finished network has memorised given labels instead of learning the classes, by clean samples that it has
not seen."""

from __future__ import annotations

import math

import torch

from ..data.sample_table import pieces_of
from ..data.splits import Splits
from ..training.prediction_history import PredictionHistory
from .evidence import Evidence

FAR = 0.15  # how much more often a network agrees with the labels it was trained on than it is right
NEAR_CHANCE = 0.95  # of the loss of a network that gives all classes the same probability
FEWEST = 20  # clean samples


def memorised(history: PredictionHistory, data: Splits, evidence: Evidence) -> str | None:
    """A sentence if training went wrong; None if it did not, or if too few clean samples are held out to tell."""
    held_out = evidence.held_out
    if held_out is None or len(held_out.verified) < FEWEST or history.final is None or not len(data.train):
        return None
    samples, classes = held_out.probs.shape
    right = float((held_out.probs.argmax(1) == held_out.verified).double().mean())
    agreeing = sum(
        int((history.said(data.train.index[piece]).argmax(1) == data.train.label[piece]).sum())
        for piece in pieces_of(torch.arange(len(data.train)), classes)
    )
    agreement = agreeing / len(data.train)
    spread = 2 * math.sqrt(right * (1 - right) / samples)
    if agreement > right + FAR + spread:
        return (
            f"The network agrees with {100 * agreement:.0f} % of the labels it was trained on but is right on "
            f"{100 * right:.0f} % of {samples:,} clean samples it has not seen: it has memorised labels, wrong ones "
            "included, and the list misses those. Train for fewer epochs, or on the features of a pretrained network."
        )
    probs = held_out.probs.double().gather(1, held_out.verified.unsqueeze(1)).clamp_min(1e-12)
    loss, chance = -float(probs.log().mean()), math.log(classes)
    if loss > NEAR_CHANCE * chance:
        return (
            f"The network's loss on {samples:,} clean samples it has not seen is {loss:.2f}, and that of guessing is "
            f"{chance:.2f}: it has learned nothing the list can rest on."
        )
    return None

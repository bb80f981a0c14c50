"""Whether the finished network has memorised given labels instead of learning the classes, by clean samples that it has
not seen, or by those it was trained on if there are no others."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ..data.sample_table import pieces_of
from ..data.splits import Splits
from ..training.method import Method
from ..training.prediction_history import PredictionHistory
from .evidence import Evidence

# benchmarks/memorisation.py, 48 runs on digits and CIFAR-10 features: 17 of 18 that give at least half of their wrong
# labels back are above (.85 to 1; one has .62), none of the 30 others is (at most .67).
# With 100 clean samples, none held out: of 69 runs that do, 50 are warned of, 18 are said to be unknown, 1 is passed
# over; of 59 that do not, none, 2 and 57.
MOST = 0.8  # of the labels that a network would get wrong if they were new, those that it agrees with all the same
# There, all of the 30 but one (1.05, at 70 % noise) are below (at most .83).
NEAR_CHANCE = 0.95  # of the loss of a network that gives all classes the same probability
FEWEST = 20  # clean samples


class Memorised(NamedTuple):
    """What is known of it; None where there is nothing to say."""

    warning: str | None = None  # sentences: training went wrong
    unknown: str | None = None  # why it cannot be told whether it did, as the end of a sentence


class Fit(NamedTuple):
    """How a network does on its own labels, and on clean samples."""

    agreement: float  # with the labels that it was trained on
    right: float  # on clean samples
    loss: float  # there
    samples: int  # clean ones
    classes: int
    trained_on: bool = False  # whether the clean samples were: on new ones it is right less often

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


def measured_fit(history: PredictionHistory, data: Splits, evidence: Evidence, method: Method) -> Fit | None:
    """None if there are too few clean samples to tell."""
    clean = evidence.in_sample if evidence.held_out is None else evidence.held_out
    if clean is None or len(clean.verified) < FEWEST or history.final is None or not len(data.train):
        return None
    samples, classes = clean.probs.shape
    probs = clean.probs.double().gather(1, clean.verified.unsqueeze(1)).clamp_min(1e-12)
    right = float((clean.probs.argmax(1) == clean.verified).double().mean())
    return Fit(
        _agreement(history, data),
        right,
        -float(probs.log().mean()),
        samples,
        classes,
        evidence.held_out is None and _trains_on_clean(method, data),
    )


def memorised(history: PredictionHistory, data: Splits, evidence: Evidence, method: Method) -> Memorised:
    """Whether training went wrong, as far as it can be told. On clean samples that were trained on, a network is right
    more often than on new ones: what is wrong even so is wrong, and what looks right need not be."""
    fit = measured_fit(history, data, evidence, method)
    if fit is not None:
        seen = "that it was trained on" if fit.trained_on else "it has not seen"
        if fit.excess > MOST and method.trains_on_noisy:
            return Memorised(
                f"The network agrees with {100 * fit.agreement:.0f} % of the labels it was trained on but is right on "
                f"{100 * fit.right:.0f} % of {fit.samples:,} clean samples {seen}: it has memorised labels, wrong "
                "ones included, and the list misses those. Train for fewer epochs, or on the features of a pretrained "
                "network."
            )
        if fit.of_chance > NEAR_CHANCE:
            return Memorised(
                f"The network's loss on {fit.samples:,} clean samples {seen} is {fit.loss:.2f}, and that of "
                f"guessing is {math.log(fit.classes):.2f}: it has learned nothing the list can rest on."
            )
        if not fit.trained_on:
            return Memorised()
    return Memorised(unknown=_why_unknown(history, data, method))


def _why_unknown(history: PredictionHistory, data: Splits, method: Method) -> str | None:
    """Why it cannot be told; None if nothing was memorised, or if the list has predictions that are not."""
    if history.final is None or not len(data.train) or method.cross_fits or not method.trains_on_noisy:
        return None
    agreement = _agreement(history, data)
    clean = 0 if data.unbiased_clean is None else len(data.unbiased_clean)
    # The excess is largest for a network that is right on new samples no more often than by chance.
    if agreement <= MOST + (1 - MOST) / history.classes:
        return None
    told = f"it agrees with {100 * agreement:.0f} % of the labels it was trained on, and"
    if clean < FEWEST:
        return f"{told} it takes {FEWEST} clean samples to compare that with ({clean} there); check 100 random samples"
    return (
        f"{told} all {clean:,} clean samples were trained on too; give 200, of which some are held out, or use a "
        "method that cross-fits"
    )


def _trains_on_clean(method: Method, data: Splits) -> bool:
    """Whether the meta samples are trained on: by methods that need them, and by all where they were reviewed."""
    return "clean set" in method.needs or data.drawn_clean is None


def _agreement(history: PredictionHistory, data: Splits) -> float:
    """With the given labels of the training samples, by the finished network."""
    agreeing = sum(
        int((history.said(data.train.index[piece]).argmax(1) == data.train.label[piece]).sum())
        for piece in pieces_of(torch.arange(len(data.train)), history.classes)
    )
    return agreeing / len(data.train)

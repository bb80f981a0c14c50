"""Whether the deployed network would memorise its labels, and whether it learns from means of two samples.

Means of two images are an augmentation: they help a network whether or not it memorises. Means of two vectors keep a
network from memorising its labels, and cost one that does not: on features of 50,000 images, a head with dropout loses
0.3 to 0.7 points. So vectors are mixed where networks of given labels have memorised some of them, or would."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor

from ...data.splits import Splits
from ...runtime.distributed import broadcast_object
from ...training.mixup import can_mix

# Share of the labels that cannot be predicted which networks must have memorised. On tuning seeds, mixing helps from
# 0.19 on (scikit-learn's tables, few features without much dropout) and does not up to 0.14 (many features). Where
# there are regressions only: a sample's leverage, the share of its own label in what a regression that has seen it
# predicts, times the epochs in which a network sees it. On features of CIFAR-10, tuning seed 100, mixing changes the
# test accuracy by +0.6 points at 0.27, by +0.2 to +0.7 at 0.67, by -0.1 and +0.5 at 0.21, by -0.7 and -0.2 at 0.10.
MEMORISED = 0.15
# The same where soft labels are worse than the given ones, as they may be where few labels are wrong and the network is
# unsure of just these: on features of CIFAR-10, feature-dependent 20 %, 12 epochs, 0.25 are memorised (tuning seed 100)
# and the test accuracy was 73.6 % without this rule and is 75.8 with it (seed 101; cross entropy: 76.2).
IF_SOFT_LABELS_ARE_WORSE = 0.5
MANY = 2000  # samples, from which on these shares are certain enough to do without soft labels

Kind = Literal["vector", "mixable", "other"]


def kind_of_inputs(data: Splits) -> Kind:
    """Vectors whose mean is a vector like them, other inputs that can be mixed, such as images, or inputs that cannot
    be. Only of vectors is it looked at whether networks memorise them: the others are taken to be."""
    some = data.train.at(torch.arange(min(16, len(data.train.index))))
    inputs = next(data.in_order(some)).inputs
    found: Kind = "other"
    if can_mix(inputs):
        found = "vector" if isinstance(inputs, Tensor) and inputs.dim() == 2 else "mixable"
    return cast(Kind, broadcast_object(found))


def memorises(share: float, *, samples: int, gain: float) -> bool:
    """Whether networks memorise vectors: by the share of unpredictable labels that they have memorised, or would, the
    number of samples, and the gain of soft labels over given ones."""
    return share >= (IF_SOFT_LABELS_ARE_WORSE if gain < 0 and samples >= MANY else MEMORISED)

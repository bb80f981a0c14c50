"""Whether the deployed network learns from means of two samples.

Means of two images are an augmentation: they help a network whether or not it memorises. Means of two vectors keep a
network from memorising its labels, and cost one that does not: on features of 50,000 images, a head with dropout loses
0.3 to 0.7 points. So vectors are mixed where networks of given labels have memorised some of them, or would."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...data.splits import Splits
from ...runtime.distributed import broadcast_object
from ...training.mixup import can_mix

# Share of the labels that cannot be predicted which networks must have memorised. On tuning seeds, mixing helps from
# 0.19 on (scikit-learn's tables, few features without much dropout) and does not up to 0.14 (many features).
MEMORISED = 0.15
# Where there are regressions only: a sample's leverage, the share of its own label in what a regression that has seen
# it predicts, times the epochs in which a network sees it. On features of CIFAR-10, tuning seed 100, mixing changes the
# test accuracy by +0.6 points at 0.27, by +0.2 to +0.7 at 0.67, by -0.1 and +0.5 at 0.21, by -0.7 and -0.2 at 0.10.
EPOCHS_OF_LEVERAGE = 0.15


def inputs_mix(data: Splits) -> tuple[bool, bool]:
    """Whether the mean of two inputs is an input, and whether inputs are vectors."""
    some = data.train.at(torch.arange(min(16, len(data.train.index))))
    inputs = next(data.in_order(some)).inputs
    possible, vectors = broadcast_object((can_mix(inputs), isinstance(inputs, Tensor) and inputs.dim() == 2))
    return possible, vectors


def mixing_helps(data: Splits, memorised: Callable[[], float]) -> bool:
    """Whether to mix inputs of networks that have memorised this share of the labels that cannot be predicted."""
    possible, vectors = inputs_mix(data)
    return possible and (not vectors or memorised() >= MEMORISED)


def mixing_would_help(data: Splits, leverage: float, epochs: int) -> bool:
    """The same of vectors with this mean leverage, before a network has seen them in so many epochs."""
    return inputs_mix(data)[0] and leverage * epochs >= EPOCHS_OF_LEVERAGE

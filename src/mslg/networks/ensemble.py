"""Several networks as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from ..data.batch import logits_of


class Ensemble(nn.ModuleList):
    """Networks that together predict the mean of their probabilities, as log-probabilities."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return mean_log_probs([logits_of(network(*args, **kwargs)).log_softmax(1) for network in self])


def mean_log_probs(log_probs: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of several predictions."""
    return reduce(torch.logaddexp, log_probs) - math.log(len(log_probs))

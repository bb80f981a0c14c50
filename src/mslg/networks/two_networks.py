"""Two networks that predict together."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..data.batch import logits_of


class TwoNetworks(nn.Module):
    """Two networks; the log of their mean probabilities is the output."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return mean_log_probs(*(logits_of(network(*args, **kwargs)).log_softmax(1) for network in self.children()))


def mean_log_probs(first: Tensor, second: Tensor) -> Tensor:
    """The log of the mean of two predictions."""
    return torch.logaddexp(first, second) - math.log(2)

"""Instance-dependent noise: each sample has a flip rate of its own, and a random view of its input picks the class.

Xia et al., Part-dependent Label Noise, 2020.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Inputs
from .arguments import Array, as_rows
from .corruption import Corruption, check
from .sampling import drawn


def instance_dependent(
    label: Tensor,
    rate: float,
    generator: np.random.Generator,
    *,
    classes: int,
    inputs: Inputs = None,
    input_scale: float = 255.0,
    spread: float = 0.1,
) -> Corruption:
    """Sample i keeps its label with probability 1 − q_i; q_i is normal around the rate, truncated to [0, 1].

    Otherwise it goes to a class drawn from the softmax over the others of xᵀW, W a random normal matrix for each true
    class. The authors feed images of 0 to 255, for which the softmax is all but one-hot; images here are 0 to 1, hence
    the `input_scale` of 255. A smaller one gives softer noise. Near rates of 0 and 1 the truncation shifts the mean.
    """
    check(label, rate, classes)
    if inputs is None:
        raise ValueError("instance-dependent noise looks at the samples: pass inputs, one row a sample")
    points = as_rows(inputs, len(label))
    rows = transition_rows(
        points, label.numpy(), rate, generator, classes=classes, input_scale=input_scale, spread=spread
    )
    given = torch.as_tensor(drawn(rows, generator))
    nominal = np.eye(classes)
    for own in np.unique(label.numpy()):
        nominal[own] = rows[label.numpy() == own].mean(0)
    return Corruption(given, label, torch.as_tensor(nominal))


def transition_rows(
    points: Array,
    label: Array,
    rate: float,
    generator: np.random.Generator,
    *,
    classes: int,
    input_scale: float,
    spread: float,
) -> Array:
    """(samples, classes): the probabilities of each sample's given label."""
    flip = _flip_rates(len(label), rate, spread, generator)
    rows = np.zeros((len(label), classes))
    for own in range(classes):
        members = np.flatnonzero(label == own)
        # One matrix at a time: all of them together need classes² columns.
        view = generator.standard_normal((points.shape[1], classes), dtype=np.float32)
        scores = input_scale * (points[members] @ view).astype(np.float64)
        scores[:, own] = -np.inf
        shares = np.exp(scores - scores.max(1, keepdims=True, initial=-np.inf))
        rows[members] = flip[members, None] * shares / shares.sum(1, keepdims=True)
        rows[members, own] = 1 - flip[members]
    return rows


def _flip_rates(samples: int, rate: float, spread: float, generator: np.random.Generator) -> Array:
    """Normal around the rate, drawn anew until all lie in [0, 1]. A rate of 0 means no noise at all."""
    if spread < 0:
        raise ValueError(f"spread={spread} is not possible; it is the standard deviation of the flip rates, 0 or more")
    if rate == 0:
        return np.zeros(samples)
    flip = generator.normal(rate, spread, samples)
    while len(outside := np.flatnonzero((flip < 0) | (flip > 1))):
        flip[outside] = generator.normal(rate, spread, len(outside))
    return flip

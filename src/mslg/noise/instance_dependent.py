"""Instance-dependent noise: each sample has its own flip rate, and a random projection of its input picks the class.

Xia et al., Part-dependent Label Noise, 2020.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Inputs
from .corruption import Corruption, check
from .read_arrays import Array, flat_rows
from .sampling import draw_classes


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
    """Flip the label of sample i with probability q_i, normal around the rate and truncated to [0, 1], which shifts the
    mean for rates near 0 and 1. The new class is drawn from the softmax of xᵀW over the other classes, with a random
    normal matrix W per true class.

    Args:
        label: (samples,) int64 labels to corrupt.
        rate: the share of labels to change, from 0 to 1.
        generator: of all random draws.
        classes: the number of classes.
        inputs: (samples, ...) of all samples.
        input_scale: the authors use pixels from 0 to 255, for which the softmax is nearly one-hot; pixels here are from
            0 to 1, hence 255. A smaller scale gives softer noise.
        spread: the standard deviation of the flip rates.

    Returns:
        The corrupted labels and the transition matrix.
    """
    check(label, rate, classes)
    if inputs is None:
        raise ValueError("instance-dependent noise depends on the inputs: pass inputs, one row per sample")
    points = flat_rows(inputs, len(label))
    rows = transition_rows(
        points, label.numpy(), rate, generator, classes=classes, input_scale=input_scale, spread=spread
    )
    given = torch.as_tensor(draw_classes(rows, generator))
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
    """(samples, classes) probabilities of each sample's given label."""
    flip = _flip_rates(len(label), rate, spread, generator)
    rows = np.zeros((len(label), classes))
    for own in range(classes):
        members = np.flatnonzero(label == own)
        # One matrix at a time: all of them together would need classes² columns.
        projection = generator.standard_normal((points.shape[1], classes), dtype=np.float32)
        scores = input_scale * (points[members] @ projection).astype(np.float64)
        scores[:, own] = -np.inf
        shares = np.exp(scores - scores.max(1, keepdims=True, initial=-np.inf))
        rows[members] = flip[members, None] * shares / shares.sum(1, keepdims=True)
        rows[members, own] = 1 - flip[members]
    return rows


def _flip_rates(samples: int, rate: float, spread: float, generator: np.random.Generator) -> Array:
    """Normal around the rate, redrawn until all are in [0, 1]. A rate of 0 means no noise at all."""
    if spread < 0:
        raise ValueError(f"spread={spread} is not possible; it is the standard deviation of the flip rates, 0 or more")
    if rate == 0:
        return np.zeros(samples)
    flip = generator.normal(rate, spread, samples)
    while len(outside := np.flatnonzero((flip < 0) | (flip > 1))):
        flip[outside] = generator.normal(rate, spread, len(outside))
    return flip

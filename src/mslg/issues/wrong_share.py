"""The share of wrong labels among the training samples, in many draws: counted on clean samples that carry both labels,
or worked out from what the network predicts and how often it is mistaken on held-out clean samples."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data.splits import Splits
from ..noise.transition_matrix import best_strength, count, deconvolved, smooth
from ..training.prediction_history import PredictionHistory
from .posterior import Labelled, joint_of

WORK = 2**25  # of all draws of a deconvolution: with many classes there are fewer draws
FAR = 2.0  # standard deviations from which clean samples are called drawn in other shares than the training samples
ROUGH = 0.2  # such a share is off by about this in its log odds where the noise does not follow the network's mistakes


def share_of_pairs(held_out: Labelled, weight: Tensor, data: Splits, random: torch.Generator) -> Tensor:
    """(draws,) share of wrong labels among all clean samples that carry both: those that steer and the held-out."""
    assert data.pairs is not None
    given, verified = (torch.cat(parts) for parts in zip((held_out.given, held_out.verified), data.pairs))
    more = torch.empty(len(weight), len(data.pairs[0]), dtype=torch.float64).exponential_(generator=random)
    weight = torch.cat([weight, more], 1) * class_weights(given, verified, held_out.probs.shape[1], data)
    # Half a wrong and half a right one on top: none seen in a few hundred does not mean none at all.
    few = 0.5 * torch.randn(len(weight), 2, generator=random, dtype=torch.float64) ** 2
    count_wrong = (weight * (given != verified)).sum(1) + few[:, 0]
    return count_wrong / (weight.sum(1) + few.sum(1))


def share_left(share: Tensor, data: Splits) -> Tensor:
    """(draws,) share of wrong labels among the training samples that are left, from that among all there were: clean
    samples are a draw of all, and a review takes wrong labels out more than right ones."""
    if not data.decided:
        return share
    left = share * (len(data.train) + data.decided) - data.decided_wrong
    return (left / len(data.train)).clamp(1e-4, 1 - 1e-4)


def share_of_predictions(
    held_out: Labelled, weight: Tensor, data: Splits, history: PredictionHistory, random: torch.Generator
) -> Tensor:
    """(draws,) share of wrong labels, worked out from the predictions for the training samples and the mistakes of the
    network on the held-out ones. Half of the draws use predictions made in passing, which are worse than those on the
    held-out samples and make the share too high; the others the finished network's, which knows the labels it was given
    and makes it too low."""
    classes = held_out.probs.shape[1]
    joint = torch.stack([joint_of(data, history, classes, in_passing=passing) for passing in (True, False)])
    cells = held_out.verified * classes + held_out.probs.argmax(1)
    draws = max(8, min(len(weight), WORK // classes**3))
    once = 1 / held_out.sample.bincount()[held_out.sample].double()  # all copies of a sample together count once
    weights = torch.cat([torch.ones(1, len(cells), dtype=torch.float64), weight[:draws]]) * once
    counts = [torch.bincount(cells, row, classes**2).view(classes, classes) for row in weights]
    strength = best_strength(counts[0])
    confusion = torch.stack([smooth(each, strength) for each in counts])
    half = torch.arange(draws) % 2
    middle, shares = (
        1 - deconvolved(*each).diagonal(dim1=1, dim2=2).sum(1)
        for each in ((joint, confusion[[0, 0]]), (joint[half], confusion[1:]))
    )
    # Drawn mistakes fit the predictions less well than the counted ones, which looks like more wrong labels.
    shares = shares + (middle - torch.stack([shares[half == one].mean() for one in (0, 1)]))[half]
    shares = shares.clamp(1e-4, 1 - 1e-4).repeat(len(weight) // draws + 1)[: len(weight)]
    return torch.sigmoid(shares.logit() + ROUGH * torch.randn(len(weight), generator=random, dtype=torch.float64))


def class_weights(given: Tensor, verified: Tensor, classes: int, data: Splits) -> Tensor:
    """(samples,) weights of clean samples that give the true classes the shares they have in the training set, where
    they were clearly drawn in others."""
    pairs = count(given, verified, classes)
    there = torch.bincount(data.train.label, minlength=classes).double() / len(data.train)
    here = pairs.sum(0) / pairs.sum()
    # At least that of one sample: a class may have none in the training set.
    spread = (there * (1 - there) / pairs.sum()).sqrt().clamp_min(1 / float(pairs.sum()))
    if float(((here - there) / spread).square().mean().sqrt()) < FAR:
        return torch.ones(len(given), dtype=torch.float64)
    matrix, start = smooth(pairs, None), (pairs.sum(1) + 0.5) / (pairs.sum() + 0.5 * classes)
    shares = start.clone()
    for _ in range(20):  # the most likely true shares behind the given ones; stopped early, so near the start
        mixed = shares[:, None] * matrix
        shares = (mixed / mixed.sum(0).clamp_min(1e-12) * there).sum(1)
    return (shares / start).clamp(0.1, 10)[verified]

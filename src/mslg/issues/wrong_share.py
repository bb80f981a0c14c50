"""The share of wrong labels among the training samples, in many draws: counted on clean samples with given and verified
labels, or deconvolved from the predictions with the network's confusion on held-out clean samples."""

from __future__ import annotations

import torch
from torch import Tensor

from ..noise.smoothed_counts import SmoothedCounts
from ..noise.transition_matrix import best_strength, deconvolved, smooth
from .evidence import Evidence, Predictions, VerifiedSamples

# benchmarks/error_rate.py measures how well the shares hold (docs/results/issues.md, "wrong labels").
MAX_WORK = 2**25  # of all deconvolutions: with many classes there are fewer draws
FAR = 2.0  # standard deviations between class shares from which clean samples no longer count as a random draw
MOST_WEIGHT = 10.0  # of a class of clean samples: the few samples of a rare class must not decide everything
MODEL_ERROR = 0.2  # of the log odds of a deconvolved share, where noise and network make related mistakes


def share_from_pairs(
    held_out: VerifiedSamples, predictions: Predictions, evidence: Evidence, weight: Tensor, random: torch.Generator
) -> Tensor:
    """(draws,) share of wrong labels among all clean samples with both labels: the pairs and the held-out ones."""
    given, verified = held_out.given, held_out.verified
    if evidence.pairs is not None and not evidence.cross_fitted:
        given, verified = (torch.cat(parts) for parts in zip((given, verified), evidence.pairs, strict=True))
        more = torch.empty(len(weight), len(evidence.pairs[0]), dtype=torch.float64).exponential_(generator=random)
        weight = torch.cat([weight, more], 1)
    weight = weight * class_weights(given, verified, predictions, evidence.class_shift)
    # Half a wrong and half a right label are added: none seen in a few hundred does not mean none at all.
    few = 0.5 * torch.randn(len(weight), 2, generator=random, dtype=torch.float64) ** 2
    count_wrong = (weight * (given != verified)).sum(1) + few[:, 0]
    share = count_wrong / (weight.sum(1) + few.sum(1))
    if not evidence.reviewed:
        return share
    # Clean samples are a draw of all samples, and a review takes out wrong labels more often than right ones.
    left = share * (len(predictions) + evidence.reviewed) - evidence.reviewed_wrong
    return (left / len(predictions)).clamp(1e-4, 1 - 1e-4)


def share_from_predictions(
    held_out: VerifiedSamples, predictions: Predictions, weight: Tensor, random: torch.Generator
) -> Tensor:
    """(draws,) share of wrong labels, deconvolved from the predictions with the confusion on held-out samples.

    Half of the draws use predictions made during training, which are worse than those for held-out samples and make
    the share too high; the others the finished network's, which has memorised given labels and makes it too low.
    """
    classes = len(predictions.classes)
    joint = predictions.all_joint_counts()
    cells = held_out.verified * classes + held_out.probs.argmax(1)
    draws = max(8, min(len(weight), MAX_WORK // classes**3))
    once = 1 / held_out.sample.bincount()[held_out.sample].double()  # all copies of a sample together count once
    weights = torch.cat([torch.ones(1, len(cells), dtype=torch.float64), weight[:draws]]) * once
    counts = weights.new_zeros(len(weights), classes**2).index_add_(1, cells, weights).view(-1, classes, classes)
    strength = best_strength(counts[0])
    confusion = smooth(counts, strength)
    kind = torch.arange(draws) % len(joint)
    middle, shares = (
        1 - deconvolved(*each).diagonal(dim1=1, dim2=2).sum(1)
        for each in ((joint, confusion[[0] * len(joint)]), (joint[kind], confusion[1:]))
    )
    # A drawn confusion fits the predictions less well than the counted one, which looks like more wrong labels.
    shares = shares + (middle - torch.stack([shares[kind == number].mean() for number in range(len(joint))]))[kind]
    shares = shares.clamp(1e-4, 1 - 1e-4).repeat(len(weight) // draws + 1)[: len(weight)]
    return torch.sigmoid(shares.logit() + MODEL_ERROR * torch.randn(len(weight), generator=random, dtype=torch.float64))


def class_weights(
    given: Tensor, verified: Tensor, predictions: Predictions, class_shift: Tensor | None = None
) -> Tensor:
    """(clean samples,) importance weights that give the true classes the shares they have in the training set: by a
    method's own estimate of these, or by given labels where these clearly have other shares.

    Given labels can hide a difference: where the wrong labels of frequent classes go to rare ones, they look even."""
    if class_shift is not None:
        return class_shift.exp().clamp(1 / MOST_WEIGHT, MOST_WEIGHT)[verified]
    classes, number = len(predictions.classes), len(given)
    there = torch.bincount(predictions.given, minlength=classes).double() / len(predictions)
    here = torch.bincount(given, minlength=classes).double() / number
    # At least that of one sample: a class may have none in the training set.
    spread = (there * (1 - there) / number).sqrt().clamp_min(1 / number)
    if float(((here - there) / spread).square().mean().sqrt()) < FAR:
        return torch.ones(number, dtype=torch.float64)
    matrix = SmoothedCounts.of(given, verified, classes)
    start = (matrix.total + 0.5) / (number + 0.5 * classes)
    shares = start.clone()
    for _ in range(20):  # expectation maximisation of the true shares behind the given ones; early stopping regularises
        shares = shares * matrix.mean_over_given(there / matrix.given_shares(shares).clamp_min(1e-12))
    return (shares / start).clamp(1 / MOST_WEIGHT, MOST_WEIGHT)[verified]

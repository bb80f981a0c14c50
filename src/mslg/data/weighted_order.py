"""An order of training samples in which each occurs as often as its weight says.

As for balanced classes, no batch has a sample twice: per-sample tables are written once per batch.
"""

from __future__ import annotations

import torch
from torch import Tensor


def weighted_order(weights: Tensor, sizes: list[int], generator: torch.Generator) -> Tensor:
    """Positions in `weights` for consecutive batches.

    Args:
        weights: (samples,) how often each sample is wanted, relative to the others; 0 for never.
        sizes: of the batches; none is larger than the number of samples.
        generator: of every random choice.

    Returns:
        (sum of the sizes,) positions.
    """
    visits = _visits(weights.double(), sum(sizes), len(sizes), generator)
    often_first = torch.randperm(len(weights), generator=generator)
    often_first = often_first[visits[often_first].argsort(descending=True, stable=True)]
    sample = often_first.repeat_interleave(visits[often_first])
    # The batches are dealt one sample each, round after round, so the visits of a sample fall into different ones.
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    round_ = torch.cat([torch.arange(size) for size in sizes])
    dealt = (round_ * len(sizes) + torch.randperm(len(sizes), generator=generator)[batch]).argsort()
    order = torch.empty_like(sample)
    order[dealt] = sample
    order = _without_repetition(order, batch, len(weights))
    within = torch.randperm(len(order), generator=generator)  # so that the micro-batches of a batch are alike
    return order[within[batch[within].argsort(stable=True)]]


def _visits(weights: Tensor, total: int, most: int, generator: torch.Generator) -> Tensor:
    """(samples,) whole numbers that add up to `total`, none above `most`, in expectation proportional to the weights as
    far as that allows."""
    expected = torch.zeros_like(weights)
    able = weights > 0
    while (left := total - float(expected.sum())) > 1e-9 and bool(able.any()):
        share = torch.where(able, weights, 0)
        expected = (expected + left * share / share.sum()).clamp(max=most)
        able = able & (expected < most - 1e-9)
    if total - float(expected.sum()) > 1e-6:  # too few samples of weight: the others fill up
        rest = expected == 0
        expected = expected + (total - expected.sum()) * rest / rest.sum()
    shuffled = torch.randperm(len(weights), generator=generator)
    start = torch.rand(1, generator=generator, dtype=torch.float64)
    bounds = (torch.cat([torch.zeros(1, dtype=torch.float64), expected[shuffled].cumsum(0)]) + start + 1e-9).floor()
    visits = torch.empty(len(weights), dtype=torch.int64)
    visits[shuffled] = bounds.diff().long()
    visits[shuffled[-1]] += total - int(visits.sum())
    return visits


def _without_repetition(order: Tensor, batch: Tensor, samples: int) -> Tensor:
    """Replace what a batch has twice, because others are shorter, by the next samples that it does not have."""
    key = batch * samples + order
    by_key = key.argsort(stable=True)
    again = by_key[1:][key[by_key].diff() == 0]
    for place in again.tolist():
        members = set(order[batch == batch[place]].tolist())
        candidate = int(order[place])
        while candidate in members:
            candidate = (candidate + 1) % samples
        order[place] = candidate
    return order

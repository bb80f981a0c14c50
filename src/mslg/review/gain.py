"""Which samples to review next: those whose true labels may be expected to lower the clean loss most.

With g the gradient of the clean loss and z_j the logits of sample j, a small training step on j with the label r in
place of the label in use, q_j, lowers the clean loss in proportion to

    Σ_c q_jc · D_g z_jc − D_g z_jr

What r is, only the review will tell. The posterior of the run says how probable each class is, so that

    gain of j  =  Σ_r P(true label is r) · max(0, fall of the clean loss with r)

which is small where the label in use is surely right, and where the sample does not matter to the clean ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from ..bilevel import Bilevel
from ..data.samples import Samples
from ..data.source import Source
from ..data.splits import Splits
from ..training.losses import cross_entropy

CANDIDATES = 20_000  # the worst labels of the list: further down hardly one is wrong
SPREAD = 0.5  # how soon one kind of mistake has been seen often enough: the k-th of a kind counts k^−SPREAD
COLUMNS = ("id", "rank", "given_label", "suggested_label", "gain")


def next_reviews(
    network: nn.Module, data: Splits, source: Source, labels: pd.DataFrame, *, count: int = 50
) -> pd.DataFrame:
    """The samples to review next, the most worthwhile first. `labels` has rows of the run's labels, by their places
    among the training samples."""
    if count < 1:
        raise ValueError(f"{count} samples were asked for; ask for at least 1")
    clean = data.select if data.select is not None else data.unbiased_clean
    if clean is None or not len(clean):
        raise ValueError(
            "what a review is worth is measured on clean samples and the run had none; review its list from the top"
        )
    rows = labels[(labels["rank"] < CANDIDATES) & labels["label_quality"].notna()]
    samples = data.train.at(torch.tensor(rows.index.to_list(), dtype=torch.int64))
    probs, moved = tangents(network, data, samples, clean)
    number = {name: place for place, name in enumerate(source.classes)}
    given = torch.tensor([number[name] for name in rows["given_label"]])
    true = posterior(probs, given, torch.tensor(rows["label_quality"].to_numpy(dtype=np.float64)))
    in_use = torch.tensor(np.stack(rows["soft_label"].to_list())).double() if len(rows) else true
    gain = expected_gain(moved, in_use, true)
    other = true.scatter(1, given.unsqueeze(1), -1.0).argmax(1)
    chosen = spread_out(gain.tolist(), list(zip(given.tolist(), other.tolist())), count)
    found = rows.iloc[chosen][["id", "given_label", "suggested_label", *(["path"] if "path" in rows else [])]]
    found = found.assign(rank=np.arange(len(chosen)), gain=gain[chosen].numpy()).reset_index(drop=True)
    return found[[*COLUMNS, *(["path"] if "path" in rows else [])]]


def posterior(probs: Tensor, given: Tensor, quality: Tensor) -> Tensor:
    """(samples, classes) how probable each class is: the given one as its quality says, the others as predicted."""
    others = probs.double().scatter(1, given.unsqueeze(1), 0.0).clamp_min(0)
    others = others / others.sum(1, keepdim=True).clamp_min(1e-300)
    return ((1 - quality).unsqueeze(1) * others).scatter(1, given.unsqueeze(1), quality.unsqueeze(1))


def expected_gain(moved: Tensor, in_use: Tensor, true: Tensor) -> Tensor:
    """The expected fall of the clean loss, up to a factor, when a sample's label becomes the true one. `moved` is the
    tangent of the logits along the clean gradient."""
    fall = (in_use * moved).sum(1, keepdim=True) - moved
    return (true * fall.clamp_min(0)).sum(1)


def spread_out(gain: Sequence[float], kinds: Sequence[Any], count: int) -> list[int]:
    """Places of the highest gains, where each further one of a kind counts less: many of one mistake teach what few of
    it do."""
    queues: dict[Any, list[int]] = {}
    for place in sorted(range(len(gain)), key=lambda place: -gain[place]):
        queues.setdefault(kinds[place], []).append(place)
    heap = [(-gain[queue[0]], queue[0], kind, 0) for kind, queue in queues.items()]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < count:
        _, place, kind, seen = heapq.heappop(heap)
        chosen.append(place)
        if seen + 1 < len(queues[kind]):
            following = queues[kind][seen + 1]
            heapq.heappush(heap, (-gain[following] * (seen + 2) ** -SPREAD, following, kind, seen + 1))
    return chosen


def tangents(network: nn.Module, data: Splits, samples: Samples, clean: Samples) -> tuple[Tensor, Tensor]:
    """(samples, classes) probabilities, and how the logits move along the gradient of the clean loss."""
    training = network.training
    network.eval()
    engine = Bilevel(network)
    direction = clean_gradient(engine, data, clean)
    probs, moved = [], []
    for batch in data.in_order(samples):
        done = engine.forward(batch.inputs)
        probs.append(done.logits.detach().double().softmax(1).cpu())
        moved.append(engine.tangent(done, direction).double().cpu())
    network.train(training)
    return torch.cat(probs), torch.cat(moved)


def clean_gradient(engine: Bilevel, data: Splits, clean: Samples) -> list[Tensor | None]:
    """The gradient of the mean loss of these samples."""
    total: list[Tensor | None] = [None] * len(engine.parameters)
    for batch in data.in_order(clean):
        share = len(batch.index) / len(clean)
        gradient, _ = engine.clean_gradient(engine.parameters, batch.inputs, partial(_mean_loss, batch.label))
        total = [_plus(before, now, share) for before, now in zip(total, gradient)]
    return total


def _mean_loss(label: Tensor, logits: Tensor) -> Tensor:
    return cross_entropy(logits.log_softmax(1), label).mean()


def _plus(total: Tensor | None, part: Tensor | None, share: float) -> Tensor | None:
    if part is None:
        return total
    return share * part if total is None else total + share * part

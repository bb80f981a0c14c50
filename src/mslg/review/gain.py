"""Which samples to review next: those whose true labels are expected to reduce the clean loss most.

With g the gradient of the clean loss and z_j the logits of sample j, a small training step on j with the label r
instead of its current label q_j reduces the clean loss in proportion to

    Σ_c q_jc · D_g z_jc − D_g z_jr

Only the review will tell what r is. The run's posterior gives the probability of each class, so that

    gain of j  =  Σ_r P(true label is r) · max(0, reduction of the clean loss with r)

which is small where the current label is almost certainly right, and where the sample does not affect the clean ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..bilevel import Bilevel
from ..data.samples import Samples
from ..data.splits import Splits
from ..training.losses import cross_entropy

if TYPE_CHECKING:
    import pandas as pd

CANDIDATES = 20_000  # the worst labels of the list: further down hardly one is wrong
# benchmarks/review_round.py measures a round with the samples chosen so (docs/results/issues.md).
DIVERSITY = 0.5  # the k-th sample with the same kind of mistake counts k^−DIVERSITY
COLUMNS = ("id", "rank", "given_label", "suggested_label", "gain")


def choose_reviews(network: nn.Module, data: Splits, labels: pd.DataFrame, *, count: int = 50) -> pd.DataFrame:
    """The samples to review next, the most useful first. Their gain is a multiple of the mean over all candidates: of
    a sample drawn at random. `labels` has rows of the run's labels, indexed by their positions among the training
    samples."""
    if count < 1:
        raise ValueError(f"{count} samples were asked for; ask for at least 1")
    clean = data.select if data.select is not None else data.unbiased_clean
    if clean is None or not len(clean):
        raise ValueError(
            "the gain of a review is measured on clean samples and the run had none; review its list from the top"
        )
    rows = labels[(labels["rank"] < CANDIDATES) & labels["label_quality"].notna()]
    samples = data.train.at(torch.tensor(rows.index.to_list(), dtype=torch.int64))
    probs, tangents = predict_with_tangents(network, data, samples, clean)
    number = {name: place for place, name in enumerate(data.source.classes)}
    given = torch.tensor([number[name] for name in rows["given_label"]])
    true = class_probabilities(probs, given, torch.tensor(rows["label_quality"].to_numpy(dtype=np.float64)))
    current = torch.tensor(np.stack(rows["soft_label"].to_list())).double() if len(rows) else true
    gain = expected_gain(tangents, current, true)
    other = true.scatter(1, given.unsqueeze(1), -1.0).argmax(1)
    gain = gain / gain.mean().clamp_min(1e-300)
    chosen = pick_diverse(gain.tolist(), list(zip(given.tolist(), other.tolist(), strict=True)), count)
    columns = [*COLUMNS, *(["path"] if "path" in rows else [])]
    found = rows.iloc[chosen].assign(gain=gain[chosen].numpy())
    return found[columns].reset_index(drop=True)


def class_probabilities(probs: Tensor, given: Tensor, quality: Tensor) -> Tensor:
    """(samples, classes) the label quality for the given class, the rest divided as predicted."""
    others = probs.double().scatter(1, given.unsqueeze(1), 0.0).clamp_min(0)
    others = others / others.sum(1, keepdim=True).clamp_min(1e-300)
    return ((1 - quality).unsqueeze(1) * others).scatter(1, given.unsqueeze(1), quality.unsqueeze(1))


def expected_gain(tangents: Tensor, current: Tensor, true: Tensor) -> Tensor:
    """(samples,) expected reduction of the clean loss, up to a factor, when the true label replaces the current one.
    `tangents` (samples, classes) are those of the logits along the clean gradient."""
    reduction = (current * tangents).sum(1, keepdim=True) - tangents
    return (true * reduction.clamp_min(0)).sum(1)


def pick_diverse(gain: Sequence[float], kinds: Sequence[Any], count: int) -> list[int]:
    """Positions of the highest gains, discounted for every sample of the same kind already picked: many of one mistake
    teach little more than a few of it."""
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
            heapq.heappush(heap, (-gain[following] * (seen + 2) ** -DIVERSITY, following, kind, seen + 1))
    return chosen


def predict_with_tangents(network: nn.Module, data: Splits, samples: Samples, clean: Samples) -> tuple[Tensor, Tensor]:
    """(samples, classes) probabilities, and tangents of the logits along the gradient of the clean loss."""
    training = network.training
    network.eval()
    engine = Bilevel(network)
    direction = clean_gradient(engine, data, clean)
    probs, tangents = [], []
    for batch in data.in_order(samples):
        done = engine.forward(batch.inputs)
        probs.append(done.logits.detach().double().softmax(1).cpu())
        tangents.append(engine.tangent(done, direction).double().cpu())
    network.train(training)
    return torch.cat(probs), torch.cat(tangents)


def clean_gradient(engine: Bilevel, data: Splits, clean: Samples) -> list[Tensor | None]:
    """The gradient of the mean loss of these samples."""
    total: list[Tensor | None] = [None] * len(engine.parameters)
    for batch in data.in_order(clean):
        share = len(batch.index) / len(clean)
        gradient, _ = engine.clean_gradient(engine.parameters, batch.inputs, partial(_mean_loss, batch.label))
        total = [_plus(before, now, share) for before, now in zip(total, gradient, strict=True)]
    return total


def _mean_loss(label: Tensor, logits: Tensor) -> Tensor:
    return cross_entropy(logits.log_softmax(1), label).mean()


def _plus(total: Tensor | None, part: Tensor | None, share: float) -> Tensor | None:
    if part is None:
        return total
    return share * part if total is None else total + share * part

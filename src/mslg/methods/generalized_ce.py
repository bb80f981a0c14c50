"""Generalized cross entropy (Zhang and Sabuncu, 2018): between cross entropy and the mean absolute error.

    ℓ_q = (1 − p^q) / q        p = probability of the given label

The truncated form trains only on samples whose loss is below ℓ_q at p = k. Which ones these are is decided every few
epochs by a pass over the training set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from ..data.batch import Batch, Inputs, arguments, logits_of
from ..data.splits import Splits
from ..networks.evaluating import evaluating
from ..training.losses import generalized_cross_entropy
from ..training.method import SingleNetwork, StepResult, Task


class GeneralizedCE(SingleNetwork):
    """Mean of ℓ_q over the batch.

    q  0 = cross entropy … 1 = absolute error, robust but slow to learn
    """

    def __init__(self, task: Task, *, q: float = 0.7) -> None:
        super().__init__(task)
        if not 0 <= q <= 1:
            raise ValueError(f"q is {q}; it must be between 0 (cross entropy) and 1 (absolute error), usually 0.7")
        self.q = q

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        log_probs = self.log_probs(batch.inputs)
        loss = generalized_cross_entropy(log_probs, batch.label, self.q).mean()
        self.descend(self.optimizer, loss)
        return StepResult({"loss": loss}, log_probs)


class TruncatedGCE(GeneralizedCE):
    """Generalized cross entropy that drops samples with a large loss: the paper's main method.

    q            0 = cross entropy … 1 = absolute error, robust but slow to learn
    k            the probability of the given label below which a sample is dropped
    first_prune  fraction of the run, or epochs if ≥ 1, trained on all samples before the first selection
    prune_every  fraction of the run, or epochs if ≥ 1, between two selections
    """

    def __init__(
        self,
        task: Task,
        *,
        q: float = 0.7,
        k: float = 0.5,
        first_prune: float = 40 / 120,
        prune_every: float = 10 / 120,
    ) -> None:
        super().__init__(task, q=q)
        if not 0 < k <= 1:
            raise ValueError(f"k is {k}; it is a probability above 0 (keep every sample) and up to 1 (keep none)")
        if prune_every <= 0:
            raise ValueError(f"prune_every is {prune_every}; it must be above 0: a fraction of the run, or epochs")
        self.limit = loss_at(k, q)
        self.first_prune_epoch = task.warm_up_epochs(first_prune, before="the pruning of generalized cross entropy")
        self.prune_every = max(1, round(prune_every * task.epochs if prune_every < 1 else prune_every))
        self.dropped = task.new_sample_table("dropped", dtype=torch.bool)
        self.best: dict[str, Tensor] = {}  # the network that was best on the held-out clean samples
        self.best_accuracy = -1.0

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        with evaluating(self.network):
            self._update_best(epoch, data)
            if epoch >= self.first_prune_epoch and (epoch - self.first_prune_epoch) % self.prune_every == 0:
                self._prune(data)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        log_probs = self.log_probs(batch.inputs)
        losses = generalized_cross_entropy(log_probs, batch.label, self.q)
        kept = (~self.dropped[batch.index]).to(losses.dtype)
        loss = (kept * (losses - self.limit)).mean()  # a dropped sample counts as lying on the limit
        self.descend(self.optimizer, loss)
        return StepResult({"loss": loss, "kept": kept.mean()}, log_probs)

    def extra(self) -> dict[str, Any]:
        return {"best": self.best, "best_accuracy": self.best_accuracy}

    def restore_extra(self, extra: dict[str, Any]) -> None:
        self.best = {name: tensor.to(self.task.device) for name, tensor in extra["best"].items()}
        self.best_accuracy = float(extra["best_accuracy"])

    def _update_best(self, epoch: int, data: Splits) -> None:
        if data.select is None or epoch == 0:
            return
        hits = sum(
            int((self.log_probs(batch.inputs).argmax(1) == batch.label).sum()) for batch in data.in_order(data.select)
        )
        if hits / len(data.select) > self.best_accuracy:
            self.best_accuracy = hits / len(data.select)
            tensors = chain(self.network.named_parameters(), self.network.named_buffers())
            self.best = {name: tensor.detach().clone() for name, tensor in tensors}

    def _prune(self, data: Splits) -> None:
        for batch in data.in_order():
            losses = generalized_cross_entropy(self._best_log_probs(batch.inputs), batch.label, self.q)
            self.dropped[batch.index] = losses >= self.limit

    def _best_log_probs(self, inputs: Inputs) -> Tensor:
        """Of the best network so far, or of the present one if there are no samples to choose it by."""
        return logits_of(functional_call(self.network, self.best, *arguments(inputs))).log_softmax(1)


def loss_at(probability: float, q: float) -> float:
    """ℓ_q of a given label with this probability."""
    return -math.expm1(q * math.log(probability)) / q if q > 0 else -math.log(probability)

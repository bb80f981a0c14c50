"""Early-learning regularization (Liu et al., 2020): keep to what the network predicted before it began to memorize.

t_i ← m·t_i + (1 − m)·p_i,        loss = CE + weight · mean log(1 − ⟨t_i, p_i⟩)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.batch import Batch
from ..training.losses import cross_entropy, early_learning_penalty
from ..training.method import SingleNetwork, StepResult, Task

EDGE = 1e-4  # probabilities stay this far from 0 and 1, or the penalty's gradient explodes at full agreement


class ELR(SingleNetwork):
    """Cross entropy with a pull towards the running mean of each sample's own predictions.

    target_momentum  fraction of a sample's target that stays at each visit (the paper's β)
    weight           of the penalty (the paper's λ); 0 = cross entropy
    """

    presets: ClassVar = {
        "cifar10-symmetric": lambda task: {"target_momentum": 0.7, "weight": 3.0},
        "cifar10-asymmetric": lambda task: {"target_momentum": 0.9, "weight": 1.0},
        "cifar100": lambda task: {"target_momentum": 0.9, "weight": 7.0},
    }

    given: Tensor

    def __init__(self, task: Task, *, target_momentum: float = 0.7, weight: float = 3.0) -> None:
        super().__init__(task)
        if not 0 <= target_momentum < 1:
            raise ValueError(
                f"target_momentum is {target_momentum}; it must be at least 0 and below 1: at 1 the targets stay empty"
            )
        if weight < 0:
            raise ValueError(f"weight is {weight}; it must be 0 (cross entropy) or more")
        self.target_momentum, self.weight = target_momentum, weight
        self.target = task.new_sample_table("targets", task.classes)
        self.register_buffer("given", task.given.to(task.device), persistent=False)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        log_probs = self.log_probs(batch.inputs)
        probs = log_probs.exp().clamp(EDGE, 1 - EDGE)
        target = self.remember(batch.index, probs.detach())
        plain = cross_entropy(log_probs, batch.label).mean()
        penalty = early_learning_penalty(probs, target).mean()
        loss = plain + self.weight * penalty
        self.descend(self.optimizer, loss)
        scalars = {
            "loss": loss,
            "cross_entropy": plain,
            "penalty": penalty,
            "labels/changed": (target.argmax(1) != batch.label).float().mean(),
        }
        return StepResult(scalars, log_probs)

    def remember(self, index: Tensor, probs: Tensor) -> Tensor:
        """Fold predictions into the targets of these samples; returns their new rows."""
        fresh = (probs / probs.sum(1, keepdim=True)).to(self.target.dtype)
        rows = self.target_momentum * self.target[index] + (1 - self.target_momentum) * fresh
        self.target[index] = rows
        return rows

    def soft_labels(self, index: Tensor) -> Tensor:
        rows = self.target[index]
        total = rows.sum(1, keepdim=True)  # below 1 until a sample has been visited often
        untouched = F.one_hot(self.given[index], self.task.classes).to(rows.dtype)
        return torch.where(total > 0, rows / total.clamp_min(EDGE), untouched)

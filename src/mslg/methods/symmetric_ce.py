"""Symmetric cross entropy (Wang et al., 2019): cross entropy plus its reverse, in which label and prediction swap.

α·CE + β·RCE,        RCE = −Σ p log t  with  log 0 := log_zero,  which is  −log_zero·(1 − p of the given label)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from ..data.batch import Batch
from ..training.losses import cross_entropy, reverse_cross_entropy
from ..training.method import SingleNetwork, StepResult, Task


class SymmetricCE(SingleNetwork):
    """Mean of the weighted sum.

    alpha     weight of cross entropy, which learns fast and also learns wrong labels
    beta      weight of reverse cross entropy, which is robust and learns slowly
    log_zero  value used for log 0 (the paper's A); only its product with beta matters
    """

    presets: ClassVar = {
        "cifar10": lambda task: {"alpha": 0.1, "beta": 1.0},
        "cifar100": lambda task: {"alpha": 6.0, "beta": 0.1},
        "mnist": lambda task: {"alpha": 0.01, "beta": 1.0},
    }

    def __init__(self, task: Task, *, alpha: float = 0.1, beta: float = 1.0, log_zero: float = math.log(1e-4)) -> None:
        super().__init__(task)
        if alpha < 0 or beta < 0 or alpha + beta == 0:
            raise ValueError(f"alpha is {alpha} and beta {beta}; both must be 0 or more, and at least one above 0")
        if not -math.inf < log_zero < 0:
            raise ValueError(f"log_zero is {log_zero}; it stands for log 0 and must be a negative number such as -9.21")
        self.alpha, self.beta, self.log_zero = alpha, beta, log_zero

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        log_probs = self.log_probs(batch.inputs)
        plain = cross_entropy(log_probs, batch.label).mean()
        reverse = reverse_cross_entropy(log_probs, batch.label, self.log_zero).mean()
        loss = self.alpha * plain + self.beta * reverse
        self.descend(self.optimizer, loss)
        return StepResult({"loss": loss, "cross_entropy": plain, "reverse_cross_entropy": reverse}, log_probs)

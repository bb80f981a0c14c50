"""Bootstrapping (Reed et al., 2014): the target is the given label mixed with what the network itself predicts.

soft:  −Σ [w·t + (1 − w)·p] log p  =  w·CE + (1 − w)·H(p)          hard: the predicted class instead of p
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ..data.batch import Batch
from ..registry import expect_name
from ..training.losses import bootstrap_hard, bootstrap_soft
from ..training.method import SingleNetwork, StepResult, Task

LOSSES = {"soft": bootstrap_soft, "hard": bootstrap_hard}
WEIGHTS = {"soft": 0.95, "hard": 0.8}


class Bootstrap(SingleNetwork):
    """Mean of the bootstrapped loss.

    kind    "soft" mixes in the predicted probabilities, "hard" the predicted class
    weight  of the given label (the paper's β); 0.95 for soft and 0.8 for hard when not given; 1 = cross entropy
    """

    def __init__(self, task: Task, *, kind: Literal["soft", "hard"] = "soft", weight: float | None = None) -> None:
        super().__init__(task)
        expect_name("kind", kind, LOSSES)
        self.kind, self.weight = kind, WEIGHTS[kind] if weight is None else weight
        if not 0 < self.weight <= 1:
            raise ValueError(
                f"weight is {weight}; it must be above 0 and at most 1: without the given labels nothing is learned"
            )

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        log_probs = self.log_probs(batch.inputs)
        loss = LOSSES[self.kind](log_probs, batch.label, self.weight).mean()
        self.descend(self.optimizer, loss)
        agree = (log_probs.argmax(1) == batch.label).float().mean()
        return StepResult({"loss": loss, "agree": agree}, log_probs)

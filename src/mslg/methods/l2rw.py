"""Learning to reweight examples (Ren et al. 2018): sample weights from the clean gradient, anew in every step.

A sample counts as much as a small step along its own gradient would lower the clean loss, and not at all if it would
raise it. With g the clean gradient at the present weights that is, before normalising, max(0, D_g ℓ_j).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..bilevel import Bilevel, Mode
from ..data.batch import Batch
from ..runtime.distributed import averaged, ranks
from ..training.losses import cross_entropy, cross_entropy_tangent
from ..training.method import SingleNetwork, StepResult, Task


class LearningToReweight(SingleNetwork):
    """The loss is Σ w_j·ℓ_j with w_j ∝ max(0, D_g ℓ_j); `mode` is how D_g is computed (see `mslg.bilevel.Bilevel`)."""

    needs = frozenset({"clean set"})

    def __init__(self, task: Task, *, mode: Mode = "exact") -> None:
        super().__init__(task)
        self.engine = Bilevel(self.network, mode=mode, head=task.head(self.network))

    def relative_cost(self, epoch: int) -> float:
        return self.engine.relative_cost(0.0)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        verified = next(clean)
        meta = self.engine(
            batch.inputs,
            lambda logits: cross_entropy(logits.log_softmax(1), batch.label).mean(),
            verified.inputs,
            lambda logits: cross_entropy(logits.log_softmax(1), verified.label).mean(),
            look_ahead=0.0,  # weights are differentiated at zero, where θ̂ = θ
        )
        log_probs = meta.logits.log_softmax(1)
        weights = positive_shares(cross_entropy_tangent(log_probs.detach(), batch.label, meta.tangent))
        loss = (weights * cross_entropy(log_probs, batch.label)).sum() * ranks()  # the ranks' losses are averaged
        self.descend(self.optimizer, loss)
        scalars = {
            "loss": loss,
            "clean/loss": meta.clean_loss,
            "weights/used": (weights > 0).float().mean(),
        }
        return StepResult(scalars, log_probs)


def positive_shares(values: Tensor) -> Tensor:
    """Positive values over their sum in the whole batch, zero for the others; all zero if none is positive."""
    positive = values.clamp_min(0)
    total = averaged([positive.sum()])[0] * ranks()
    return positive / torch.where(total > 0, total, torch.ones_like(total))

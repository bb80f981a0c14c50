"""Meta-Weight-Net (Shu et al. 2019): a small network learns, on clean samples, to map a loss to a weight.

With ℓ_j the cross entropy of sample j and V the weight net, the network trains on the mean of V(ℓ_j)·ℓ_j. V follows the
gradient of the clean loss at the looked-ahead weights θ̂ = θ − η·∇ mean V(ℓ_j)·ℓ_j. With g the clean gradient there,

    d(clean loss)/dV_j = −(η/N)·D_g ℓ_j

so the tangent, chained into V, is the whole meta-gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from ..bilevel import Bilevel, Mode
from ..data.batch import Batch
from ..registry import expect_name
from ..runtime.distributed import average_gradients, gathered, mean
from ..runtime.precision import full_precision
from ..runtime.seeds import seeded
from ..training.losses import cross_entropy, cross_entropy_tangent
from ..training.method import SingleNetwork, StepResult, Task


class MetaWeightNet(SingleNetwork):
    """The whole method.

    hidden        width of the weight net (one hidden layer)
    weight_rate   learning rate of the weight net's Adam; it does not follow the schedule
    net_decay     weight decay of the weight net
    normalize     divide the weights by their sum over the batch, as the authors' first script did
    look_ahead    η: "learning-rate" for the classifier's present one, or a fixed distance
    mode          how the tangent is computed (see `mslg.bilevel.Bilevel`)
    """

    needs = frozenset({"clean set"})

    def __init__(
        self,
        task: Task,
        *,
        hidden: int = 100,
        weight_rate: float = 1e-3,
        net_decay: float = 1e-4,
        normalize: bool = False,
        look_ahead: Literal["learning-rate"] | float = "learning-rate",
        mode: Mode = "exact",
    ) -> None:
        super().__init__(task)
        if hidden < 1:
            raise ValueError(f"hidden is {hidden}; the weight net needs at least 1 hidden unit")
        for name, value in {"weight_rate": weight_rate, "net_decay": net_decay}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        if isinstance(look_ahead, str):
            expect_name("look_ahead", look_ahead, ("learning-rate",))
        elif look_ahead <= 0:
            raise ValueError(
                f"look_ahead is {look_ahead}; the weights are learned from what a step of this length would do, so it "
                'must be above 0 (or "learning-rate")'
            )
        self.normalize, self.look_ahead = normalize, look_ahead
        self.engine = Bilevel(self.network, mode=mode, head=task.head(self.network))
        with seeded(torch.device("cpu"), task.seed, "weight net"):
            layers = nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Sigmoid())
        self.weight_net = layers.to(task.device, next(self.network.parameters()).dtype)
        self.weight_optimizer = self.keep_optimizer(
            "weight net",
            # Fused: the other implementations read their step counter back to the host in every step.
            torch.optim.Adam(self.weight_net.parameters(), lr=weight_rate, weight_decay=net_decay, fused=True),
            scheduled=False,
        )

    def relative_cost(self, epoch: int) -> float:
        return self.engine.relative_cost(1.0)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        verified = next(clean)
        distance = self.learning_rate() if isinstance(self.look_ahead, str) else self.look_ahead

        def weighted_loss(logits: Tensor) -> Tensor:
            losses = cross_entropy(logits.log_softmax(1), batch.label)
            return (self.weights(losses).detach() * losses).mean()

        meta = self.engine(
            batch.inputs,
            weighted_loss,
            verified.inputs,
            lambda logits: cross_entropy(logits.log_softmax(1), verified.label).mean(),
            look_ahead=distance,
        )
        log_probs = meta.logits.log_softmax(1)
        losses = cross_entropy(log_probs, batch.label)
        moved = cross_entropy_tangent(log_probs.detach(), batch.label, meta.tangent)
        self.weight_optimizer.zero_grad(set_to_none=True)
        self.weights(losses).backward(moved * (-distance / len(moved)))
        average_gradients(self.weight_net.parameters())
        self.weight_optimizer.step()
        weights = self.weights(losses).detach()
        loss = (weights * losses).mean()
        self.descend(self.optimizer, loss)
        scalars = {
            "loss": loss,
            "clean/loss": meta.clean_loss,
            "weights/mean": weights.mean(),
            "weights/spread": gathered(weights).std(correction=0),
        }
        return StepResult(scalars, log_probs)

    def weights(self, losses: Tensor) -> Tensor:
        """The factor on each sample's loss in the batch mean; with `normalize`, of mean 1."""
        with full_precision(losses.device):
            weights: Tensor = self.weight_net(losses.detach().unsqueeze(1)).squeeze(1)
        if self.normalize:
            weights = weights / mean(weights.mean()).clamp_min(torch.finfo(weights.dtype).tiny)
        return weights

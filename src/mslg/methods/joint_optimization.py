"""Joint optimization (Tanaka et al. 2018): the labels follow the network's own averaged predictions.

Step 1 trains at a constant, high learning rate, at which the network does not memorise wrong labels. After each epoch
from `first_refresh` on, every sample's label becomes the mean of its last few epochs' predictions. Two terms keep
the network from agreeing with itself on one class, or on no class at all. Step 2 trains a new network on the labels so
found, which are fixed from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..batch import Batch
from ..losses import batch_prior_loss, entropy, soft_cross_entropy
from ..method import OneNetwork, StepResult, Task
from ..names import expect_name
from ..schedule import first_epoch, schedule
from ..splits import Splits


class JointOptimization(OneNetwork):
    """Both steps in one run.

    prior_weight       α: of the loss that holds the batch's mean prediction near the prior
    entropy_weight     β: of the loss that makes single predictions decided
    first_refresh      part of the run (or epochs, from 1 on) trained on the given labels alone
    restart            part of the run (or epochs) after which step 2 starts with a new network
    averaged           predictions of so many last epochs make up a label
    hard               labels are the arg-max of that mean instead of the mean itself
    prior              "uniform", or "given": the shares of the given labels
    final_rate_factor  step 2's learning rate over step 1's; it is divided by ten at each third of step 2
    """

    presets: ClassVar = {
        "cifar10-symmetric": lambda task: {"prior_weight": 1.2, "entropy_weight": 0.8},
        "cifar10-asymmetric": lambda task: {"prior_weight": 0.8, "entropy_weight": 0.4},
    }

    soft: Tensor
    predictions: Tensor
    prior: Tensor

    def __init__(
        self,
        task: Task,
        *,
        prior_weight: float = 1.2,
        entropy_weight: float = 0.8,
        first_refresh: float = 70 / 320,
        restart: float = 200 / 320,
        averaged: int = 10,
        hard: bool = False,
        prior: Literal["uniform", "given"] = "uniform",
        final_rate_factor: float = 1.0,
    ) -> None:
        super().__init__(task)
        expect_name("prior", prior, ("uniform", "given"))
        for name, value in {"prior_weight": prior_weight, "entropy_weight": entropy_weight}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        if averaged < 1:
            raise ValueError(f"averaged is {averaged}; a label is the mean of at least 1 epoch's predictions")
        if final_rate_factor <= 0:
            raise ValueError(f"final_rate_factor is {final_rate_factor}; it must be above 0, or step 2 learns nothing")
        stage = "joint optimization's label refresh"
        self.first_refreshed_epoch = 0 if task.warm else first_epoch(stage, first_refresh, task.epochs)
        self.restart_epoch = first_epoch("joint optimization's second step", restart, task.epochs)
        if self.restart_epoch < max(1, self.first_refreshed_epoch):
            raise ValueError(
                f"step 2 starts after {self.restart_epoch} epochs and the labels are first refreshed after "
                f"{self.first_refreshed_epoch}; raise restart ({restart}) or lower first_refresh ({first_refresh})"
            )
        self.prior_weight, self.entropy_weight = prior_weight, entropy_weight
        self.averaged, self.hard, self.final_rate_factor = averaged, hard, final_rate_factor
        one_hot = F.one_hot(task.given.to(task.device), task.classes).float()
        even = torch.full_like(one_hot[0], 1 / task.classes)
        self.register_buffer("prior", even if prior == "uniform" else one_hot.mean(0), persistent=False)
        self.register_buffer("soft", one_hot)
        # A ring over epochs: epoch e's predictions are in slot e modulo `averaged`.
        self.register_buffer("predictions", one_hot.new_zeros(averaged, *one_hot.shape))

    def learning_rate_factor(self, progress: float) -> float:
        within = (progress * self.task.epochs - self.restart_epoch) / (self.task.epochs - self.restart_epoch)
        return 1.0 if within < -1e-9 else self.final_rate_factor * schedule("steps")(within)

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        if epoch == self.restart_epoch and not self.task.warm:  # else the network is one that has been through step 2
            self.network = self.task.new_network()
            self.optimizer = self.add_optimizer("network", [p for p in self.network.parameters() if p.requires_grad])

    def continue_from(self, state: Mapping[str, Any]) -> None:
        super().continue_from(state)
        self.predictions.zero_()  # those of the earlier run's step 1 are of another network

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        log_probs = self.log_probs(batch.inputs)
        soft = self.soft[batch.index]
        loss = soft_cross_entropy(log_probs, soft).mean()
        scalars = {"labels/changed": (soft.argmax(1) != batch.label).float().mean()}
        if self.epoch < self.restart_epoch:
            prior_loss, mean_entropy = batch_prior_loss(log_probs, self.prior), entropy(log_probs).mean()
            loss = loss + self.prior_weight * prior_loss + self.entropy_weight * mean_entropy
            scalars |= {"regularizer/prior": prior_loss.detach(), "regularizer/entropy": mean_entropy.detach()}
            slot = self.predictions[self.epoch % self.averaged]
            slot[batch.index] = log_probs.detach().exp().to(slot.dtype)
        self.descend(loss)
        return StepResult({"loss": loss.detach(), **scalars}, log_probs.detach())

    def end_epoch(self, epoch: int, data: Splits) -> None:
        if self.first_refreshed_epoch <= epoch + 1 <= self.restart_epoch:
            self._refresh()

    def _refresh(self) -> None:
        """Every sample's label becomes the mean of its kept predictions; a sample never visited keeps its own."""
        total = self.predictions.sum(0)
        seen = total.sum(1, keepdim=True)  # each prediction sums to one, so this counts them
        mean = total / seen.clamp_min(1)
        if self.hard:
            mean = F.one_hot(mean.argmax(1), self.task.classes).to(mean.dtype)
        self.soft.copy_(torch.where(seen > 0, mean, self.soft))

    def soft_labels(self, index: Tensor) -> Tensor:
        return self.soft[index]

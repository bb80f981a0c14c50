"""Joint optimization (Tanaka et al. 2018): the labels follow the network's own averaged predictions.

Step 1 trains at a constant, high learning rate, at which the network does not memorize wrong labels. After each epoch
from `first_refresh` on, every sample's label becomes the mean of its last few epochs' predictions. Two terms keep
the network from agreeing with itself on one class, or on no class at all. Step 2 trains a new network on the
resulting labels, which are fixed from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.batch import Batch
from ..data.sample_table import SampleTable, pieces_of
from ..data.splits import Splits
from ..registry import expect_name
from ..runtime.distributed import mean, rank, ranks
from ..training.losses import batch_prior_loss, entropy, log_mean_prediction, soft_cross_entropy
from ..training.method import SingleNetwork, StepResult, Task
from ..training.schedules import Restarted, constant, first_epoch, schedule


class JointOptimization(SingleNetwork):
    """Both steps in one run.

    prior_weight       α: of the loss that holds the batch's mean prediction near the prior
    entropy_weight     β: of the loss that makes single predictions decided
    first_refresh      fraction of the run, or epochs if ≥ 1, trained on the given labels alone
    restart            fraction of the run, or epochs if ≥ 1, after which step 2 starts with a new network
    averaged           number of last epochs whose predictions make up a label
    hard               labels are the arg-max of that mean instead of the mean itself
    prior              "uniform", or "given": the frequencies of the given labels
    final_rate_factor  step 2's learning rate over step 1's; it is divided by ten at each third of step 2
    """

    presets: ClassVar = {
        "cifar10-symmetric": lambda task: {"prior_weight": 1.2, "entropy_weight": 0.8},
        "cifar10-asymmetric": lambda task: {"prior_weight": 0.8, "entropy_weight": 0.4},
    }

    given: Tensor
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
        self.first_refreshed_epoch = task.warm_up_epochs(first_refresh, before="joint optimization's label refresh")
        self.restart_epoch = first_epoch("joint optimization's second step", restart, task.epochs)
        if self.restart_epoch < max(1, self.first_refreshed_epoch):
            raise ValueError(
                f"step 2 starts after {self.restart_epoch} epochs and the labels are first refreshed after "
                f"{self.first_refreshed_epoch}; raise restart ({restart}) or lower first_refresh ({first_refresh})"
            )
        self.prior_weight, self.entropy_weight = prior_weight, entropy_weight
        self.averaged, self.hard = averaged, hard
        second = self.restart_epoch / task.epochs
        self.schedule = Restarted(second, constant, schedule("steps"), factor=final_rate_factor)
        self.register_buffer("given", task.given.to(task.device), persistent=False)
        shares = torch.bincount(self.given, minlength=task.classes) / len(self.given)
        even = torch.full_like(shares, 1 / task.classes)
        self.register_buffer("prior", even if prior == "uniform" else shares, persistent=False)
        self.learned = task.new_sample_table("soft_labels", task.classes)  # zeros: still the given label
        # A ring over epochs: epoch e's predictions are in slot e modulo `averaged`.
        self.predictions = nn.ModuleList(
            task.new_sample_table(f"epoch_{slot}", task.classes) for slot in range(averaged)
        )

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        if epoch == self.restart_epoch and not self.task.warm:  # a warm-started network has been through step 2
            self.restart()

    def continue_from(self, state: Mapping[str, Any]) -> None:
        super().continue_from(state)
        for slot in self.slots():  # the earlier run's predictions are of another network
            for index in self._pieces():
                slot[index] = torch.zeros(len(index), self.task.classes)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        log_probs = self.log_probs(batch.inputs)
        soft = self.soft_labels(batch.index)
        loss = soft_cross_entropy(log_probs, soft).mean()
        scalars = {"labels/changed": (soft.argmax(1) != batch.label).float().mean()}
        if self.epoch < self.restart_epoch:
            prior_loss = batch_prior_loss(self._log_mean(log_probs), self.prior)
            mean_entropy = entropy(log_probs).mean()
            loss = loss + self.prior_weight * prior_loss + self.entropy_weight * mean_entropy
            scalars |= {"regularizer/prior": prior_loss, "regularizer/entropy": mean_entropy}
            self.slots()[self.epoch % self.averaged][batch.index] = log_probs.detach().exp()
        self.descend(self.optimizer, loss)
        return StepResult({"loss": loss, **scalars}, log_probs)

    def end_epoch(self, epoch: int, data: Splits) -> None:
        if self.first_refreshed_epoch <= epoch + 1 <= self.restart_epoch:
            self._refresh()

    def slots(self) -> list[SampleTable]:
        """The tables of predictions, one per kept epoch."""
        return [slot for slot in self.predictions if isinstance(slot, SampleTable)]

    def _log_mean(self, log_probs: Tensor) -> Tensor:
        """log of the mean prediction of the whole batch, over all ranks."""
        own = log_mean_prediction(log_probs)
        return own if ranks() == 1 else mean(own.exp()).log()

    def _pieces(self) -> list[Tensor]:
        """The index of the samples that this process owns, in chunks."""
        own = torch.arange(rank(), len(self.given), ranks(), device=self.given.device)
        return pieces_of(own, self.task.classes)

    def _refresh(self) -> None:
        """Set every label to the mean of the sample's kept predictions; a sample never visited keeps its label."""
        for index in self._pieces():
            total = torch.stack([slot[index] for slot in self.slots()]).sum(0)
            seen = total.sum(1, keepdim=True)  # each prediction sums to one, so this counts them
            label = total / seen.clamp_min(1)
            if self.hard:
                label = F.one_hot(label.argmax(1), self.task.classes).to(label.dtype)
            self.learned[index] = torch.where(seen > 0, label, self.learned[index])

    def labels_fixed(self, epochs: int) -> str | None:
        return None if epochs >= max(1, self.first_refreshed_epoch) else "the run ended before label learning"

    def soft_labels(self, index: Tensor) -> Tensor:
        rows = self.learned[index]
        given = torch.zeros_like(rows).scatter_(1, self.given[index].unsqueeze(1), 1.0)
        return torch.where(rows.sum(1, keepdim=True) > 0, rows, given)

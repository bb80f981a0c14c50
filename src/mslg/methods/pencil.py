"""PENCIL (Yi and Wu 2019): label logits and network learn from one loss, each by its own gradient.

Stage 1 trains by cross entropy at a constant, high learning rate. Stage 2 minimizes, over the network and the label
logits u at once,

    (1/C)·KL(p‖ŷ) + α·(−log ŷ at the given label) + (β/C)·H(p),        ŷ = softmax(u)

and stage 3 trains on the resulting labels with the first term alone. The gradient with respect to the label logits has
a closed form: with λ the paper's label learning rate and label_rate = λ/(N·C),

    u_j ← u_j − label_rate · [(ŷ_j − p_j) + α·C·(ŷ_j − e_given)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..bilevel.label_table import LabelTable
from ..data.batch import Batch
from ..training.losses import cross_entropy, entropy, reverse_kl
from ..training.method import SingleNetwork, StepResult, Task
from ..training.schedules import Restarted, constant, first_epoch, schedule


def _settings(
    alpha: float, beta: float, label_learning_rate: float, **others: float
) -> Callable[[Task], dict[str, float]]:
    """Settings as the paper gives them, with its λ translated for the task's batch size and number of classes."""

    def of(task: Task) -> dict[str, float]:
        rate = label_learning_rate / (task.batch_size * task.classes)
        return {"alpha": alpha, "beta": beta, "label_rate": rate, **others}

    return of


class Pencil(SingleNetwork):
    """The three stages.

    alpha              α: how strongly the learned label is tied to the given one
    beta               β: of the entropy of the predictions
    label_rate         step of the label logits per visit (the paper's λ/(N·C): see `from_paper`)
    label_learning     fraction of the run, or epochs if ≥ 1, after which stage 2 starts
    fixed_labels       fraction of the run, or epochs if ≥ 1, after which stage 3 starts
    final_rate_factor  stage 3's first learning rate over that of stages 1 and 2; divided by ten at each third
    start              K: label logits begin at K·onehot(given)
    official_lo        the authors' code instead of their paper: a second softmax in the term of α, which weakens it
    """

    advice = "a smaller label_rate"
    label_advice = "a larger label_rate"
    presets: ClassVar = {
        "cifar10-symmetric": _settings(0.1, 0.8, 300),
        "cifar10-asymmetric": _settings(0.0, 0.4, 4000),
        "clothing1m": _settings(
            0.08, 0.8, 3000, label_learning=5 / 25, fixed_labels=15 / 25, final_rate_factor=0.0005 / 0.0016
        ),
    }

    def __init__(
        self,
        task: Task,
        *,
        alpha: float = 0.4,
        beta: float = 0.1,
        label_rate: float = 600 / (128 * 10),
        label_learning: float = 70 / 320,
        fixed_labels: float = 200 / 320,
        final_rate_factor: float = 0.2 / 0.06,
        start: float = 10.0,
        official_lo: bool = False,
    ) -> None:
        super().__init__(task)
        for name, value in {"alpha": alpha, "beta": beta, "label_rate": label_rate, "start": start}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        if final_rate_factor <= 0:
            raise ValueError(f"final_rate_factor is {final_rate_factor}; it must be above 0, or stage 3 learns nothing")
        self.first_label_epoch = task.warm_up_epochs(label_learning, before="PENCIL's label learning")
        self.first_fixed_epoch = first_epoch("PENCIL's third stage", fixed_labels, task.epochs)
        if self.first_fixed_epoch <= self.first_label_epoch:
            raise ValueError(
                f"stage 2 starts after {self.first_label_epoch} epochs and stage 3 after {self.first_fixed_epoch}, so "
                f"no label is ever learned; raise fixed_labels ({fixed_labels}), lower label_learning "
                f"({label_learning}), or train longer"
            )
        self.alpha, self.beta, self.label_rate = alpha, beta, label_rate
        self.official_lo = official_lo
        fixed = self.first_fixed_epoch / task.epochs
        self.schedule = Restarted(fixed, constant, schedule("steps"), factor=final_rate_factor)
        self.table = LabelTable(task.given.to(task.device), task.classes, start=start)

    @classmethod
    def from_paper(cls, task: Task, label_learning_rate: float = 600, **others: Any) -> Pencil:
        """PENCIL with the paper's λ, whose effect depends on the batch size and the number of classes."""
        return cls(task, **{"label_rate": label_learning_rate / (task.batch_size * task.classes), **others})

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        if self.epoch < self.first_label_epoch:
            return self.cross_entropy_step(batch)
        log_probs = self.log_probs(batch.inputs)
        log_soft = self.table.log_soft(batch.index)
        scalars = {"labels/changed": (log_soft.argmax(1) != batch.label).float().mean()}
        if self.epoch < self.first_fixed_epoch:
            loss = self.training_loss(log_probs, log_soft, batch.label)
            direction = self.label_direction(log_probs.detach(), log_soft, batch.label)
            self.table.add(batch.index, -self.label_rate * direction)
            scalars["labels/step"] = self.label_rate * direction.abs().sum(1).mean()
        else:
            loss = reverse_kl(log_probs, log_soft).mean() / self.task.classes
        self.descend(self.optimizer, loss)
        return StepResult({"loss": loss, **scalars}, log_probs)

    def training_loss(self, log_probs: Tensor, log_soft: Tensor, label: Tensor) -> Tensor:
        """The loss of stage 2: a mean over the batch."""
        compatibility = cross_entropy(log_soft.exp().log_softmax(1) if self.official_lo else log_soft, label)
        network_part = reverse_kl(log_probs, log_soft) + self.beta * entropy(log_probs)
        return (network_part / self.task.classes + self.alpha * compatibility).mean()

    def label_direction(self, log_probs: Tensor, log_soft: Tensor, label: Tensor) -> Tensor:
        """N·C times the gradient of that loss with respect to the label logits."""
        soft = log_soft.exp()
        one_hot = torch.zeros_like(soft).scatter_(1, label.unsqueeze(1), 1.0)  # F.one_hot waits for the device
        if self.official_lo:
            outer = torch.softmax(soft, 1) - one_hot
            pull = soft * (outer - (soft * outer).sum(1, keepdim=True))
        else:
            pull = soft - one_hot
        return soft - log_probs.exp() + self.alpha * self.task.classes * pull

    def soft_labels(self, index: Tensor) -> Tensor:
        return self.table.soft(index)

    def start_labels(self, index: Tensor) -> Tensor:
        return self.table.start_soft(index)

    def labels_fixed(self, epochs: int) -> str | None:
        if self.label_rate == 0:
            return "label_rate is 0"
        return None if epochs > self.first_label_epoch else "the run ended before label learning"

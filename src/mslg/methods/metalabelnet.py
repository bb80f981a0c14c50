"""MetaLabelNet (Algan and Ulusoy 2021): a linear layer learns, on clean samples, to map features to soft labels.

Warm-up by cross entropy; a frozen copy of the network then gives features v_j. With the soft label
ŷ_j = softmax(W v_j + b) of sample j, θ̂ = θ − look_ahead·∇ mean KL(p_j‖ŷ_j) and g the clean gradient at θ̂,

    d(clean loss)/dŷ_j = look_ahead/N · D_g p_j / ŷ_j

is chained into (W, b), and the network trains on KL(p‖ŷ) plus the entropy of p with the improved labels.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from ..bilevel import Bilevel, Mode
from ..bilevel.label_generators import GeneratedLabels, LabelsFromFeatures, evidence_from, meta_loss
from ..data.batch import Batch
from ..data.splits import Splits
from ..networks.evaluating import evaluating
from ..networks.head import feature_width
from ..runtime.seeds import seeded
from ..training.losses import cross_entropy, entropy, reverse_kl
from ..training.method import SingleNetwork, StepResult, Task


class MetaLabelNet(SingleNetwork):
    """The whole method.

    warm_up          fraction of the run, or epochs if ≥ 1, that trains by cross entropy; then the features are frozen
    look_ahead       length of the gradient step after which the clean gradient is taken (the paper's α)
    generator_rate   learning rate of the linear layer's Adam (the paper's β); it does not follow the schedule
    generator_decay  its weight decay
    entropy_weight   of the entropy of the predictions in the training loss
    mode             how the tangent is computed (see `mslg.bilevel.Bilevel`)
    """

    needs = frozenset({"clean set"})
    advice = "a smaller learning rate, a longer run, or more clean samples"
    presets: ClassVar = {
        "cifar10": lambda task: {"warm_up": 44 / 120, "generator_rate": 1e-2},
        "clothing1m": lambda task: {"warm_up": 1 / 10, "generator_rate": 1e-3},
    }

    def __init__(
        self,
        task: Task,
        *,
        warm_up: float = 44 / 120,
        look_ahead: float = 1.0,
        generator_rate: float = 1e-2,
        generator_decay: float = 1e-4,
        entropy_weight: float = 1.0,
        mode: Mode = "exact",
    ) -> None:
        super().__init__(task)
        if look_ahead <= 0:
            raise ValueError(
                f"look_ahead is {look_ahead}; the labels are learned from what a step of this length would do, so it "
                "must be above 0"
            )
        rates = {"generator_rate": generator_rate, "generator_decay": generator_decay}
        for name, value in {**rates, "entropy_weight": entropy_weight}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        self.first_label_epoch = task.warm_up_epochs(warm_up, before="MetaLabelNet's label learning")
        self.look_ahead, self.entropy_weight = look_ahead, entropy_weight
        self.engine = Bilevel(self.network, mode=mode, head=task.head(self.network))
        self.encoder = copy.deepcopy(self.network).requires_grad_(False)
        with seeded(torch.device("cpu"), task.seed, "label generator"):
            generator = LabelsFromFeatures(feature_width(task.head(self.encoder)), task.classes)
        self.generator = generator.to(task.device, next(self.network.parameters()).dtype)
        self.generator_optimizer = self.keep_optimizer(
            "generator",
            # Fused: the other implementations read their step counter back to the host in every step.
            torch.optim.Adam(self.generator.parameters(), lr=generator_rate, weight_decay=generator_decay, fused=True),
            scheduled=False,
        )
        self.labels = GeneratedLabels(task.given.to(task.device), task.new_sample_table("soft_labels", task.classes))

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        if epoch == self.first_label_epoch and not self.task.warm:
            self.encoder.load_state_dict(self.network.state_dict())

    def relative_cost(self, epoch: int) -> float:
        return 1.0 if epoch < self.first_label_epoch else 0.4 + self.engine.relative_cost(self.look_ahead)

    def soft_labels(self, index: Tensor) -> Tensor:
        return self.labels.soft(index)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        return (
            self.cross_entropy_step(batch) if self.epoch < self.first_label_epoch else self._learn(batch, next(clean))
        )

    def _learn(self, batch: Batch, verified: Batch) -> StepResult:
        with evaluating(self.encoder):
            evidence = evidence_from(self.encoder, self.task.head(self.encoder), batch)
        before = self.generator(evidence)

        def inner_loss(logits: Tensor) -> Tensor:
            return reverse_kl(logits.log_softmax(1), before).mean() / self.task.classes

        meta = self.engine(
            batch.inputs,
            inner_loss,
            verified.inputs,
            lambda logits: cross_entropy(logits.log_softmax(1), verified.label).mean(),
            look_ahead=self.look_ahead,
        )
        self.descend(self.generator_optimizer, meta_loss(meta, inner_loss, self.look_ahead))
        log_soft = self.generator(evidence).detach()
        self.labels.remember(batch.index, log_soft.exp())
        log_probs = meta.logits.log_softmax(1)
        losses = reverse_kl(log_probs, log_soft) + self.entropy_weight * entropy(log_probs)
        loss = losses.mean() / self.task.classes
        self.descend(self.optimizer, loss)
        scalars = {
            "loss": loss,
            "clean/loss": meta.clean_loss,
            "labels/changed": (log_soft.argmax(1) != batch.label).float().mean(),
            "labels/entropy": entropy(log_soft).mean(),
        }
        return StepResult(scalars, log_probs)

"""MLC, meta label correction (Zheng et al. 2021): a network learns, on clean samples, to correct the given labels.

The label correction network maps the features h(x_j) of the classifier and an embedding of the given label to a soft
label ŷ_j. The classifier trains on the cross entropy of noisy samples with ŷ and of clean samples with their own
labels. With θ̂ the weights after such a step of length η (the learning rate) and g the gradient of another clean batch
there,

    d(clean loss)/dŷ_j = η·(1 − clean_share)/N · D_g z_j        (up to a constant per sample)

is chained into the label correction network.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..bilevel import Bilevel, BilevelOutput, Mode
from ..bilevel.label_generators import CorrectedLabels, GeneratedLabels, LabelEvidence, meta_loss
from ..data.batch import Batch, concat_inputs
from ..networks.head import feature_width, pooled_features, recorded_inputs
from ..runtime.seeds import seeded
from ..training.losses import cross_entropy, entropy, noisy_and_clean_loss
from ..training.method import SingleNetwork, StepResult, Task


class MLC(SingleNetwork):
    """The whole method.

    embedding       width of the given label's embedding
    hidden          width of the two hidden layers of the label correction network
    generator_rate  learning rate of its Adam; it does not follow the schedule
    clean_share     share of clean samples in the classifier's training loss; 0 = the noisy samples alone
    mode            how the tangent is computed (see `mslg.bilevel.Bilevel`)
    """

    needs = frozenset({"clean set"})
    advice = "a smaller generator_rate, a larger clean_share, or more clean samples"

    def __init__(
        self,
        task: Task,
        *,
        embedding: int = 128,
        hidden: int = 128,
        generator_rate: float = 3e-4,
        clean_share: float = 1 / 3,
        mode: Mode = "exact",
    ) -> None:
        super().__init__(task)
        for name, whole in {"embedding": embedding, "hidden": hidden}.items():
            if whole < 1:
                raise ValueError(f"{name} is {whole}; the label correction network needs at least 1 unit")
        if generator_rate < 0:
            raise ValueError(f"generator_rate is {generator_rate}; it must be 0 or more")
        if not 0 <= clean_share < 1:
            raise ValueError(f"clean_share is {clean_share}; it must be at least 0 and below 1")
        self.clean_share = clean_share
        head = task.head(self.network)
        self.engine = Bilevel(self.network, mode=mode, head=head)
        with seeded(torch.device("cpu"), task.seed, "label generator"):
            generator = CorrectedLabels(feature_width(head), task.classes, embedding=embedding, hidden=hidden)
        self.generator = generator.to(task.device, next(self.network.parameters()).dtype)
        self.generator_optimizer = self.keep_optimizer(
            "generator",
            # Fused: the other implementations read their step counter back to the host in every step.
            torch.optim.Adam(self.generator.parameters(), lr=generator_rate, amsgrad=True, fused=True),
            scheduled=False,
        )
        self.labels = GeneratedLabels(task.given.to(task.device), task.new_sample_table("soft_labels", task.classes))

    def relative_cost(self, epoch: int) -> float:
        return self.engine.relative_cost(1.0) + (1.5 if self.clean_share else 0.0)

    def soft_labels(self, index: Tensor) -> Tensor:
        return self.labels.soft(index)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        trained = [next(clean)] if self.clean_share else []
        verified, distance, count = next(clean), self.learning_rate(), len(batch.label)
        labels = trained[0].label if trained else batch.label[:0]
        with recorded_inputs(self.task.head(self.network)) as recorded:
            forward = self.engine.forward(concat_inputs([part.inputs for part in (batch, *trained)]))
        log_probs = forward.logits.log_softmax(1)
        features = pooled_features(recorded[0])[:count].detach()
        log_soft = self.generator(LabelEvidence(batch.label, features, log_probs[:count].detach()))
        soft = log_soft.exp()

        def training_loss(soft: Tensor, logits: Tensor) -> Tensor:
            noisy_loss, clean_loss = noisy_and_clean_loss(logits.log_softmax(1), soft, labels)
            return (1 - self.clean_share) * noisy_loss + self.clean_share * clean_loss

        ahead = self.engine.look_ahead(forward, lambda logits: training_loss(soft.detach(), logits), distance)
        direction, clean_loss = self.engine.clean_gradient(
            ahead, verified.inputs, lambda logits: cross_entropy(logits.log_softmax(1), verified.label).mean()
        )
        meta = BilevelOutput(forward.logits, self.engine.tangent(forward, direction), clean_loss)
        self.descend(self.generator_optimizer, meta_loss(meta, lambda logits: training_loss(soft, logits), distance))
        self.labels.remember(batch.index, soft)
        loss = training_loss(soft.detach(), forward.logits)
        self.descend(self.optimizer, loss)
        scalars = {
            "loss": loss,
            "clean/loss": clean_loss,
            "labels/changed": (log_soft.argmax(1) != batch.label).float().mean(),
            "labels/entropy": entropy(log_soft).mean(),
        }
        return StepResult(scalars, log_probs[:count])

"""EMLC, enhanced meta label correction (Taraday and Baskin 2023): a teacher with a network of its own corrects labels.

The teacher predicts p'_j, and its gate, a small network of the teacher's features and the given label ỹ_j, says how
probably ỹ_j is right. The student trains on

    ŷ_j = w_j·onehot(ỹ_j) + (1 − w_j)·p'_j

and on clean samples. The teacher descends on the clean loss of the student after that step, of length η (the learning
rate), plus its own loss on clean samples, plus the gate's: the gate must tell a clean sample's label from the wrong
label that the teacher finds most probable. With g the clean gradient of the looked-ahead student,

    d(clean loss)/dŷ_j = η/N · D_g z_j        (up to a constant per sample)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from ..bilevel import Bilevel, Mode
from ..bilevel.label_generators import GatedLabels, GeneratedLabels, LabelEvidence, evidence_from, meta_loss
from ..data.batch import Batch, concat_inputs
from ..networks.head import feature_width
from ..runtime.seeds import seeded
from ..training.losses import cross_entropy, noisy_and_clean_loss
from ..training.method import SingleNetwork, StepResult, Task


class EMLC(SingleNetwork):
    """The whole method. The student is the network that is deployed.

    embedding     width of the given label's embedding in the gate
    hidden        width of the gate's hidden layer
    clean_weight  of the clean samples in the student's training loss
    gate_weight   of the gate's loss on clean samples; 0 = the gate learns from the student alone
    mode          how the tangent is computed (see `mslg.bilevel.Bilevel`)
    """

    needs = frozenset({"clean set"})
    advice = "a smaller learning rate, or more clean samples"

    def __init__(
        self,
        task: Task,
        *,
        embedding: int = 128,
        hidden: int = 128,
        clean_weight: float = 1.0,
        gate_weight: float = 1.0,
        mode: Mode = "exact",
    ) -> None:
        super().__init__(task)
        for name, whole in {"embedding": embedding, "hidden": hidden}.items():
            if whole < 1:
                raise ValueError(f"{name} is {whole}; the gate needs at least 1 unit")
        for name, value in {"clean_weight": clean_weight, "gate_weight": gate_weight}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        self.clean_weight, self.gate_weight = clean_weight, gate_weight
        self.engine = Bilevel(self.network, mode=mode, head=task.head(self.network))
        self.teacher = task.new_network().train()
        with seeded(torch.device("cpu"), task.seed, "label generator"):
            width = feature_width(task.head(self.teacher))
            generator = GatedLabels(width, task.classes, embedding=embedding, hidden=hidden)
        self.generator = generator.to(task.device, next(self.teacher.parameters()).dtype)
        learned = [p for p in self.teacher.parameters() if p.requires_grad]
        self.teacher_optimizer = self.keep_optimizer(
            "teacher", task.new_optimizer([*learned, *self.generator.parameters()])
        )
        self.labels = GeneratedLabels(task.given.to(task.device), task.new_sample_table("soft_labels", task.classes))

    def trainable_networks(self) -> list[tuple[nn.Module, Optimizer]]:
        return [(self.network, self.optimizer), (self.teacher, self.teacher_optimizer)]

    def relative_cost(self, epoch: int) -> float:
        return self.engine.relative_cost(1.0) + 4.5

    def soft_labels(self, index: Tensor) -> Tensor:
        return self.labels.soft(index)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        trained, verified, distance, count = next(clean), next(clean), self.learning_rate(), len(batch.label)
        noisy, known = self._ask_teacher(batch, trained, verified)
        log_soft = self.generator(noisy)
        soft = log_soft.exp()

        def training_loss(soft: Tensor, logits: Tensor) -> Tensor:
            noisy_loss, clean_loss = noisy_and_clean_loss(logits.log_softmax(1), soft, trained.label)
            return noisy_loss + self.clean_weight * clean_loss

        meta = self.engine(
            concat_inputs([batch.inputs, trained.inputs]),
            lambda logits: training_loss(soft.detach(), logits),
            verified.inputs,
            lambda logits: cross_entropy(logits.log_softmax(1), verified.label).mean(),
            look_ahead=distance,
        )
        own_loss = cross_entropy(known.log_probs, known.given).mean()
        gate_loss = self.gate_loss(known)
        teacher_loss = own_loss + self.gate_weight * gate_loss
        through_student = meta_loss(meta, lambda logits: training_loss(soft, logits), distance)
        self.descend(self.teacher_optimizer, through_student + teacher_loss)
        self.labels.remember(batch.index, soft)
        loss = training_loss(soft.detach(), meta.logits)
        self.descend(self.optimizer, loss)
        scalars = {
            "loss": loss,
            "clean/loss": meta.clean_loss,
            "teacher/loss": own_loss,
            "gate/loss": gate_loss,
            "labels/changed": (log_soft.argmax(1) != batch.label).float().mean(),
        }
        return StepResult(scalars, meta.logits[:count].log_softmax(1))

    def _ask_teacher(self, *batches: Batch) -> tuple[LabelEvidence, LabelEvidence]:
        """What the teacher says, in one pass, about the first batch and about the others."""
        labels = torch.cat([batch.label for batch in batches])
        together = Batch(labels, concat_inputs([batch.inputs for batch in batches]), labels)
        evidence = evidence_from(self.teacher, self.task.head(self.teacher), together)
        count = len(batches[0].label)
        return LabelEvidence(*(part[:count] for part in evidence)), LabelEvidence(*(part[count:] for part in evidence))

    def gate_loss(self, known: LabelEvidence) -> Tensor:
        """Binary cross entropy of the gate: it should keep the label of a clean sample, and reject the most probable
        wrong one."""
        wrong = known.log_probs.detach().scatter(1, known.given.unsqueeze(1), -math.inf).argmax(1)
        kept, rejected = (self.generator.gate(known.features, label) for label in (known.given, wrong))
        return -0.5 * (F.logsigmoid(kept) + F.logsigmoid(-rejected)).mean()

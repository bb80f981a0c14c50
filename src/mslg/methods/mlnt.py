"""MLNT (Li et al. 2019): train so that a step on synthetic wrong labels would not change the predictions.

For each batch, several labelings are made in which half of the samples take the label of a near neighbour. After a
gradient step on such a labeling the student should still agree with the teacher, the running mean of its own weights:

    θ_m = θ − a·∇CE(labeling m),        J_m = KL(teacher ‖ student at θ_m)

and the student descends on CE(given labels) + (w/M)·Σ J_m. With g_m = ∇J_m at θ_m and H_m the Hessian of the
cross entropy at θ, the gradient of J_m with respect to θ is g_m − a·H_m·g_m: one Hessian-vector product per labeling.
Neighbours are found in the features of another network, trained by cross entropy first and frozen then.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..bilevel import Bilevel, hessian_vector_product
from ..bilevel.tangent_modes import ForwardPass
from ..data.batch import Batch, Inputs, call
from ..networks.evaluating import evaluating
from ..networks.head import recorded_inputs
from ..runtime.distributed import averaged, broadcast_tensor, gathered, local_slice
from ..training.losses import cross_entropy, forward_kl
from ..training.method import Method, StepResult, Task
from ..training.schedules import Restarted


class MLNT(Method):
    """Feature network first, then student and teacher.

    warm_up      fraction of the run, or epochs if ≥ 1, that trains the feature network; the rest trains the student
    labelings    M: synthetic labelings per batch
    replaced     ρ: fraction of a batch that takes a neighbour's label
    neighbours   number of nearest samples of the batch that the label may come from
    inner_rate   a: length of the step on a synthetic labeling
    meta_weight  w: final weight of the consistency loss
    ramp         fraction of the student's training over which that weight rises and `early_decay` applies
    early_decay, late_decay  γ: decay of the teacher's moving average
    memory       the teacher averages over at most this fraction of the student's training: in a run much shorter than
                 the original's, its decay would leave the teacher where it began
    """

    presets: ClassVar = {
        "cifar10": lambda task: {"inner_rate": 0.2, "labelings": 10, "replaced": 0.5},
        "clothing1m": lambda task: {"inner_rate": 0.02, "labelings": 10, "replaced": 0.5},
    }

    def __init__(
        self,
        task: Task,
        *,
        warm_up: float = 0.5,
        labelings: int = 10,
        replaced: float = 0.5,
        neighbours: int = 10,
        inner_rate: float = 0.2,
        meta_weight: float = 0.4 / 0.2,
        ramp: float = 20 / 120,
        early_decay: float = 0.99,
        late_decay: float = 0.999,
        memory: float = 0.2,
    ) -> None:
        super().__init__(task)
        for name, whole in {"labelings": labelings, "neighbours": neighbours}.items():
            if whole < 1:
                raise ValueError(f"{name} is {whole}; at least 1 is needed")
        shares = {"replaced": replaced, "ramp": ramp, "early_decay": early_decay, "late_decay": late_decay}
        for name, share in {**shares, "memory": memory}.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} is {share}; it is a fraction, from 0 to 1")
        for name, value in {"inner_rate": inner_rate, "meta_weight": meta_weight}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        self.first_student_epoch = task.warm_up_epochs(warm_up, before="MLNT's student")
        # Two trainings, each with the whole schedule.
        self.schedule = Restarted(self.first_student_epoch / task.epochs, task.schedule, task.schedule)
        self.labelings, self.replaced, self.neighbours = labelings, replaced, neighbours
        self.inner_rate, self.meta_weight, self.ramp = inner_rate, meta_weight, ramp
        steps = (task.epochs - self.first_student_epoch) * math.ceil(len(task.given) / task.batch_size)
        longest = 1 - 1 / max(1.0, memory * steps)
        self.early_decay, self.late_decay = min(early_decay, longest), min(late_decay, longest)
        # The first network may be the user's own instance: it becomes the one deployed.
        self.teacher = task.new_network()
        self.student = copy.deepcopy(self.teacher)
        self.teacher.requires_grad_(False)
        self.features = task.new_network()
        self.engine = Bilevel(self.student)
        self.optimizers = {
            name: self.add_optimizer(name, network)
            for name, network in {"features": self.features, "student": self.student}.items()
        }

    def trainable_networks(self) -> list[tuple[nn.Module, Optimizer]]:
        name = "features" if self.epoch < self.first_student_epoch else "student"
        return [(getattr(self, name), self.optimizers[name])]

    def deployed(self) -> nn.Module:
        return self.features if self.epoch < self.first_student_epoch else self.teacher

    def extra(self) -> dict[str, Any]:
        return {"epoch": self.epoch}  # decides which network predicts, also in a loaded model

    def restore_extra(self, extra: dict[str, Any]) -> None:
        self.epoch = int(extra["epoch"])

    def relative_cost(self, epoch: int) -> float:
        return 1.0 if epoch < self.first_student_epoch else 2.0 + 5.0 * self.labelings

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        return self.cross_entropy_step(batch) if self.epoch < self.first_student_epoch else self._learn(batch)

    def _learn(self, batch: Batch) -> StepResult:
        weight, decay = self._weight_and_decay()
        self._teach(decay)
        with torch.no_grad():
            # In training mode: the batch-norm statistics that belong to averaged weights are those of their own
            # activations, not an average of the student's.
            target = call(self.teacher, batch.inputs).log_softmax(1)
        done = self.engine.forward(batch.inputs)
        meta, consistency = self.meta_gradient(done, target, self.synthetic_labels(batch))
        log_probs = done.logits.log_softmax(1)
        loss = cross_entropy(log_probs, batch.label).mean()
        gradients = zip(self.engine.parameters, meta, strict=True)
        self.descend(self.optimizers["student"], loss, plus=gradients, weight=weight)
        scalars = {
            "loss": loss,
            "teacher/consistency": consistency,
            "teacher/differ": (target.argmax(1) != batch.label).float().mean(),
        }
        return StepResult(scalars, log_probs)

    def _weight_and_decay(self) -> tuple[float, float]:
        first = self.first_student_epoch
        within = max(0.0, (self.progress * self.task.epochs - first) / (self.task.epochs - first))
        if within >= self.ramp:
            return self.meta_weight, self.late_decay
        return self.meta_weight * math.exp(-5 * (1 - within / self.ramp) ** 2), self.early_decay

    @torch.no_grad()
    def _teach(self, decay: float) -> None:
        """The teacher's parameters move a little towards the student's."""
        torch._foreach_lerp_(list(self.teacher.parameters()), list(self.student.parameters()), 1 - decay)

    def synthetic_labels(self, batch: Batch) -> Tensor:
        """(labelings, batch): the given labels, some of them replaced by a near neighbour's in the whole batch."""
        near, label = self.nearest(batch.inputs), gathered(batch.label)
        size = len(label)
        order = broadcast_tensor(torch.rand(self.labelings, size, device=near.device))
        picked = order.argsort(1) < round(self.replaced * size)
        choice = broadcast_tensor(torch.randint(near.shape[1], (size, self.labelings), device=near.device))
        theirs = label[near.gather(1, choice)].T
        return torch.where(picked, theirs, label)[:, local_slice(size)]

    def nearest(self, inputs: Inputs) -> Tensor:
        """(whole batch, neighbours): positions of the samples nearest to each one in the frozen features."""
        with evaluating(self.features), recorded_inputs(self.task.head(self.features)) as recorded:
            call(self.features, inputs)
        features = recorded[0].flatten(1)
        every = gathered(features.to(torch.promote_types(features.dtype, torch.float32)))
        distance = torch.cdist(every, every).fill_diagonal_(math.inf)
        return distance.topk(min(self.neighbours, len(distance) - 1), largest=False).indices

    def meta_gradient(self, done: ForwardPass, target: Tensor, labelings: Tensor) -> tuple[list[Tensor], Tensor]:
        """The gradient of the mean consistency loss over these labelings, one tensor per parameter, and that loss."""
        total = [torch.zeros_like(p) for p in self.engine.parameters]
        consistency = torch.zeros_like(target[0, 0])

        def drift(logits: Tensor) -> Tensor:
            return forward_kl(logits.log_softmax(1), target).mean()

        for labels in labelings:
            inner = _mean_cross_entropy(labels)
            ahead = self.engine.look_ahead(done, inner, self.inner_rate)
            gradient, loss = self.engine.clean_gradient(ahead, done.inputs, drift)
            direct = [torch.zeros_like(p) if g is None else g for p, g in zip(total, gradient, strict=True)]
            torch._foreach_add_(total, direct, alpha=1 / len(labelings))
            if self.inner_rate:
                product = hessian_vector_product(
                    _through(done, inner), self.engine.parameters, direct, inside=done.with_weights
                )
                curved = averaged(product)
                torch._foreach_add_(total, curved, alpha=-self.inner_rate / len(labelings))
            consistency += loss / len(labelings)
        return total, consistency


def _mean_cross_entropy(labels: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda logits: cross_entropy(logits.log_softmax(1), labels).mean()


def _through(done: ForwardPass, loss: Callable[[Tensor], Tensor]) -> Callable[[Sequence[Tensor]], Tensor]:
    """The loss with the parameters that the network has, and with the dropout masks of the recorded pass."""
    return lambda _: loss(done.again())

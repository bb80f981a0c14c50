"""Meta Soft Label Generation (Algan and Ulusoy): learn a soft label for every training sample by a meta-gradient.

Warm-up by cross entropy, then for each batch: look ahead along the gradient of the classification loss, take the clean
gradient g there, move the label logits against D_g of the predictions, and train on the labels so improved. The clean
loss's exact gradient with respect to the label logits u_j is (α/N)·D_g p_j, so

    u_j ← u_j − label_rate · D_g p_j,        g = ∇(clean loss) at θ − look_ahead · ∇(mean classification loss)

The paper's α is both the look-ahead and a factor of the label step; here they are two arguments that depend neither on
the batch size nor on the number of classes. `from_paper` translates.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..batch import Batch
from ..bilevel import Bilevel, Mode
from ..labels import LabelTable
from ..losses import (
    cross_entropy,
    entropy,
    forward_kl,
    log_probability_tangent,
    probability_tangent,
    reverse_kl,
)
from ..method import OneNetwork, StepResult, Task
from ..names import expect_name
from ..schedule import first_epoch
from ..splits import Splits

Loss = Literal["reverse-kl", "forward-kl"]
LOSSES = {"reverse-kl": reverse_kl, "forward-kl": forward_kl}


def paper_settings(
    alpha: float, beta: float, *, batch_size: int, classes: int, reduction: Literal["batch", "element"] = "batch"
) -> dict[str, float]:
    """The paper's α and β as `look_ahead`, `label_rate` and `loss_scale`.

    With reduction "element" losses are means over samples and classes, as in the authors' code: the look-ahead, the
    label step and the training loss are all smaller by the number of classes.
    """
    expect_name("reduction", reduction, ("batch", "element"))
    per_class = classes if reduction == "element" else 1
    return {
        "look_ahead": alpha / per_class,
        "label_rate": alpha * beta / (batch_size * per_class),
        "loss_scale": 1 / per_class,
    }


PUBLISHED_BETA = {
    ("uniform", 20): 4000.0,
    ("uniform", 40): 4000.0,
    ("uniform", 60): 2000.0,
    ("uniform", 80): 400.0,
    ("feature-dependent", 20): 4000.0,
    ("feature-dependent", 40): 4000.0,
    ("feature-dependent", 60): 4000.0,
    ("feature-dependent", 80): 4000.0,
}


def published_beta(noise: str, rate: float) -> float:
    """The paper's β on CIFAR-10 for a kind of noise and its rate; none is published for other rates than these."""
    kinds = sorted({kind for kind, _ in PUBLISHED_BETA})
    kind = noise.removesuffix("-released")  # the same noise, made as the authors' code makes it
    expect_name("noise with a published β", kind, kinds)
    percent = 100 * rate
    if (kind, round(percent)) not in PUBLISHED_BETA or abs(percent - round(percent)) > 1e-6:
        rates = ", ".join(str(known / 100) for name, known in PUBLISHED_BETA if name == kind)
        raise ValueError(f"no β is published for {noise} noise at a rate of {rate}; there is one for {rates}")
    return PUBLISHED_BETA[kind, round(percent)]


def _published(task: Task) -> dict[str, Any]:
    """CIFAR-10 as the paper says: α = 0.5, β = 4000, losses averaged over the batch."""
    scaled = paper_settings(0.5, 4000, batch_size=task.batch_size, classes=task.classes)
    return {**scaled, "warm_up": 44 / 120, "start": 10.0, "entropy_weight": 1.0, "loss": "reverse-kl"}


def _released(task: Task) -> dict[str, Any]:
    """CIFAR-10 as the authors' code does it: the same α and β, losses averaged over samples and classes."""
    scaled = paper_settings(0.5, 4000, batch_size=task.batch_size, classes=task.classes, reduction="element")
    return {**_published(task), **scaled}


def label_direction(log_probs: Tensor, log_soft: Tensor, tangent: Tensor, loss: Loss) -> Tensor:
    """N/α times the gradient of the clean loss with respect to the label logits."""
    if loss == "reverse-kl":
        return probability_tangent(log_probs, tangent)
    # L_c,1 reaches the logits through the softmax of the label, which is nearly flat at K·onehot.
    soft, moved = log_soft.exp(), log_probability_tangent(log_probs, tangent)
    return soft * (moved - (soft * moved).sum(1, keepdim=True))


def mslg_step(
    engine: Bilevel,
    table: LabelTable,
    optimizer: Optimizer,
    batch: Batch,
    clean: Batch,
    *,
    look_ahead: float = 0.002,
    label_rate: float = 1.5,
    loss: Loss = "reverse-kl",
    entropy_weight: float = 1.0,
    loss_scale: float = 1.0,
) -> StepResult:
    """One step of label learning and training, for those with a loop of their own."""
    classification = LOSSES[loss]
    before = table.log_soft(batch.index)
    meta = engine(
        batch.inputs,
        lambda logits: classification(logits.log_softmax(1), before).mean(),
        clean.inputs,
        lambda logits: cross_entropy(logits.log_softmax(1), clean.label).mean(),
        look_ahead=look_ahead,
    )
    log_probs = meta.logits.log_softmax(1)
    direction = label_direction(log_probs.detach(), before, meta.tangent, loss)
    table.add(batch.index, -label_rate * direction)
    after = table.log_soft(batch.index)
    objective = classification(log_probs, after).mean() + entropy_weight * entropy(log_probs).mean()
    optimizer.zero_grad(set_to_none=True)
    (loss_scale * objective).backward()
    optimizer.step()
    scalars = {
        "loss": objective.detach(),
        "clean/loss": meta.clean_loss,
        "labels/step": label_rate * direction.abs().sum(1).mean(),
        "labels/changed": (after.argmax(1) != batch.label).float().mean(),
    }
    return StepResult(scalars, log_probs.detach())


class MSLG(OneNetwork):
    """The whole method.

    warm_up         part of the run (or epochs, from 1 on) trained by cross entropy on the given labels first
    look_ahead      distance θ̂ lies ahead of θ along the batch-mean loss's gradient (the paper's α); 0 = none
    label_rate      step of the label logits along D_g p (the paper's αβ/N); 0 = labels stay as given: a control
    start           K: label logits begin at K·onehot(given)
    loss            "reverse-kl" = L_c,2, KL(p‖ŷ), or "forward-kl" = L_c,1, KL(ŷ‖p)
    entropy_weight  γ of the entropy loss; at 1 the reverse-KL training loss is exactly −Σ p log ŷ
    loss_scale      factor on the training loss (1/classes reproduces the authors' code)
    mode, recompute how the tangent is computed (see `mslg.bilevel.Bilevel`)
    auto_clean      without a clean set: the lowest-loss samples of each class after warm-up (`auto_share` of the
                    training set) are taken out of training and used in its place
    table_file      keep the label table in this memory-mapped file instead of in memory
    table_dtype     "float32" or "float16"
    """

    needs = frozenset({"clean set"})
    presets: ClassVar = {"published": _published, "released": _released}

    def __init__(
        self,
        task: Task,
        *,
        warm_up: float = 44 / 120,
        look_ahead: float = 0.002,
        label_rate: float = 1.5,
        start: float = 10.0,
        loss: Loss = "reverse-kl",
        entropy_weight: float = 1.0,
        loss_scale: float = 1.0,
        mode: Mode = "exact",
        recompute: bool = False,
        auto_clean: bool = False,
        auto_share: float = 0.02,
        table_file: Path | str | None = None,
        table_dtype: Literal["float32", "float16"] = "float32",
    ) -> None:
        super().__init__(task)
        expect_name("loss", loss, LOSSES)
        expect_name("table_dtype", table_dtype, ("float32", "float16"))
        for name, value in {"look_ahead": look_ahead, "label_rate": label_rate, "start": start}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        if auto_clean and warm_up == 0:
            raise ValueError(
                "auto_clean needs a warm_up above 0: an untrained network cannot tell which labels are easy"
            )
        self.first_label_epoch = first_epoch("MSLG's label learning", warm_up, task.epochs)
        self.look_ahead, self.label_rate, self.entropy_weight = look_ahead, label_rate, entropy_weight
        self.loss, self.loss_scale = loss, loss_scale
        self.auto_clean, self.auto_share = auto_clean, auto_share
        self.engine = Bilevel(self.network, mode=mode, recompute=recompute, head=task.head(self.network))
        self.table = LabelTable(
            task.given.to(task.device),
            task.classes,
            start=start,
            dtype=getattr(torch, table_dtype),
            path=None if table_file is None else Path(table_file),
        )
        self.chosen = torch.empty(0, dtype=torch.int64)  # samples that stand in for a clean set

    @classmethod
    def from_paper(
        cls,
        task: Task,
        alpha: float = 0.5,
        beta: float = 4000,
        *,
        reduction: Literal["batch", "element"] = "batch",
        **others: Any,
    ) -> MSLG:
        """MSLG with the paper's two rates; `reduction="element"` reads them as the authors' code does."""
        scaled = paper_settings(alpha, beta, batch_size=task.batch_size, classes=task.classes, reduction=reduction)
        return cls(task, **{**scaled, **others})

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        if self.auto_clean and epoch == self.first_label_epoch:
            self.chosen = self._lowest_losses(data)

    def excluded(self) -> Tensor | None:
        return self.chosen if len(self.chosen) else None

    def relative_cost(self, epoch: int) -> float:
        return 1.0 if epoch < self.first_label_epoch else self.engine.relative_cost(self.look_ahead)

    def extra(self) -> dict[str, Any]:
        return {"chosen": self.chosen}  # chosen once, so it is state

    def restore_extra(self, extra: dict[str, Any]) -> None:
        self.chosen = extra["chosen"]

    def soft_labels(self, index: Tensor) -> Tensor:
        return self.table.soft(index)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        return self._warm_up(batch) if self.epoch < self.first_label_epoch else self._learn(batch, next(clean))

    def _warm_up(self, batch: Batch) -> StepResult:
        log_probs = self.log_probs(batch.inputs)
        loss = cross_entropy(log_probs, batch.label).mean()
        self.descend(loss)
        return StepResult({"loss": loss.detach()}, log_probs.detach())

    def _learn(self, batch: Batch, clean: Batch) -> StepResult:
        return mslg_step(
            self.engine,
            self.table,
            self.optimizer,
            batch,
            clean,
            look_ahead=self.look_ahead,
            label_rate=self.label_rate,
            loss=self.loss,
            entropy_weight=self.entropy_weight,
            loss_scale=self.loss_scale,
        )

    @torch.no_grad()
    def _lowest_losses(self, data: Splits) -> Tensor:
        """Indices of the samples of each given class that the warmed-up network finds easiest."""
        self.network.eval()
        found = [(b.index, b.label, cross_entropy(self.log_probs(b.inputs), b.label)) for b in data.in_order()]
        self.network.train()
        index, label, loss = (torch.cat(parts) for parts in zip(*found))
        share = max(1, round(self.auto_share * len(index) / self.task.classes))
        easiest = [(label == c).nonzero().flatten() for c in range(self.task.classes)]
        return index[torch.cat([members[loss[members].argsort()[:share]] for members in easiest])].sort().values.cpu()

"""One step of MSLG: move the labels of a batch by the meta-gradient, then train on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from ...bilevel import Bilevel, MicroBatch
from ...bilevel.label_table import LabelTable
from ...data.batch import Batch
from ...training.losses import (
    cross_entropy,
    entropy,
    forward_kl,
    log_probability_tangent,
    probability_tangent,
    reverse_kl,
    total_variation,
)
from ...training.method import StepResult
from ...training.optimizer_step import OptimizerStep

Loss = Literal["reverse-kl", "forward-kl"]
LOSSES = {"reverse-kl": reverse_kl, "forward-kl": forward_kl}


def check_log_offset(log_offset: float, loss: Loss, *, given: bool) -> None:
    """Raise for an offset that is negative, or of another form than the authors' (`given`: the prior is "given")."""
    if log_offset < 0:
        raise ValueError(f"log_offset is {log_offset}; it must be 0 or more")
    if log_offset > 0 and not (given and loss == "reverse-kl"):
        raise ValueError(
            f'log_offset is {log_offset}; only loss="reverse-kl" with prior="given" has it, as in the authors\' code: '
            'set both (preset "released" does), or leave log_offset out'
        )


def classification_loss(loss: Loss, log_offset: float = 0.0) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss by name, from log-probabilities and log soft labels; with an offset, log(ŷ + offset) replaces log ŷ."""
    if log_offset == 0:
        return LOSSES[loss]
    log_least = math.log(log_offset)
    return lambda log_probs, log_soft: reverse_kl(
        log_probs, torch.logaddexp(log_soft, torch.full_like(log_soft, log_least))
    )


def label_direction(
    log_probs: Tensor, log_soft: Tensor, tangent: Tensor, loss: Loss, log_offset: float = 0.0
) -> Tensor:
    """N/α times the gradient of the clean loss with respect to the label logits."""
    if loss == "reverse-kl":
        direction = probability_tangent(log_probs, tangent)
        if log_offset == 0:
            return direction
        # log(ŷ + offset) has the slope ŷ/(ŷ + offset) in log ŷ: a class far below the offset no longer matters.
        direction = (log_soft - math.log(log_offset)).sigmoid() * direction
        return direction - log_soft.exp() * direction.sum(1, keepdim=True)
    # The gradient of L_c,1 passes through the softmax of the label, which is nearly flat at K·onehot.
    soft, moved = log_soft.exp(), log_probability_tangent(log_probs, tangent)
    return soft * (moved - (soft * moved).sum(1, keepdim=True))


def log_posterior(log_probs: Tensor, label: Tensor, log_columns: Tensor, displacement: Tensor) -> Tensor:
    """log of the soft labels with the prior "matrix": row j of `log_columns` holds log T[·, j]."""
    return (log_columns[label] + log_probs + displacement).log_softmax(1)


def log_soft_labels(table: LabelTable, batch: Batch, log_columns: Tensor | None, log_probs: Tensor) -> Tensor:
    """log of the present soft labels of a batch."""
    if log_columns is None:
        return table.log_soft(batch.index)
    return log_posterior(log_probs.detach(), batch.label, log_columns, table.displaced(batch.index))


def mean_move(
    table: LabelTable, batch: Batch, log_columns: Tensor | None, log_probs: Tensor, log_soft: Tensor
) -> Tensor:
    """Mean total variation of a batch's soft labels from their start."""
    if log_columns is None:
        start = table.start_soft(batch.index)
    else:
        start = log_posterior(log_probs.detach(), batch.label, log_columns, torch.zeros_like(log_probs)).exp()
    return total_variation(start, log_soft.exp()).mean()


def inner_loss(
    classification: Callable[[Tensor, Tensor], Tensor], log_soft: Callable[[Tensor], Tensor], logits: Tensor
) -> Tensor:
    """The loss along whose gradient the engine looks ahead."""
    log_probs = logits.log_softmax(1)
    return classification(log_probs, log_soft(log_probs)).mean()


def clean_loss(label: Tensor, logits: Tensor) -> Tensor:
    """Cross entropy of clean samples."""
    return cross_entropy(logits.log_softmax(1), label).mean()


def shared_clean_gradient(
    engine: Bilevel,
    table: LabelTable,
    microbatches: Sequence[Batch],
    clean: Batch,
    *,
    log_columns: Tensor | None,
    look_ahead: float,
    loss: Loss,
    log_offset: float = 0.0,
) -> None:
    """Before the steps on the micro-batches of a batch: the clean gradient that they share."""
    classification = classification_loss("forward-kl" if log_columns is not None else loss, log_offset)
    labels = [partial(log_soft_labels, table, microbatch, log_columns) for microbatch in microbatches]
    clean_microbatches = clean.microbatches(len(microbatches))
    engine.shared_clean_gradient(
        _with_losses(microbatches, [partial(inner_loss, classification, log_soft) for log_soft in labels]),
        _with_losses(clean_microbatches, [partial(clean_loss, part.label) for part in clean_microbatches]),
        look_ahead=look_ahead,
    )


def _with_losses(batches: Sequence[Batch], losses: Sequence[Callable[[Tensor], Tensor]]) -> list[MicroBatch]:
    samples = sum(len(batch.index) for batch in batches)
    return [
        MicroBatch(batch.inputs, loss, len(batch.index) / samples) for batch, loss in zip(batches, losses, strict=True)
    ]


@dataclass(frozen=True)
class LabelStep:
    """The labels of a batch after a step, and what is needed to train on them.

    Attributes:
        soft: (batch, classes) the soft labels, to train on.
        logits: (batch, classes) of the noisy batch, with their graph: no second forward pass is needed.
        loss: 0-d, with its graph: MSLG's own training loss on these labels. Any other of `logits` and `soft` will do.
        scalars: 0-d tensors to log.
    """

    soft: Tensor
    logits: Tensor
    loss: Tensor
    scalars: dict[str, Tensor]


def label_step(
    engine: Bilevel,
    table: LabelTable,
    batch: Batch,
    clean: Batch | None,
    *,
    log_columns: Tensor | None = None,
    look_ahead: float = 0.002,
    label_rate: float = 0.2,
    loss: Loss = "forward-kl",
    entropy_weight: float = 0.0,
    log_offset: float = 0.0,
) -> LabelStep:
    """Move the labels of a batch by the meta-gradient, and leave the training to you: backward, clipping, scaling,
    accumulation and the optimizer's step. Gradients in `.grad` are not touched.

    Args:
        engine: for the network to train.
        table: soft labels of the training samples.
        batch: noisy samples: index (batch,), inputs (batch, ...), given labels (batch,).
        clean: clean samples with verified labels. Not used, and may be None, if the engine has `kept` a clean gradient.
        log_columns: (classes, classes) logarithm of the transposed transition matrix, for the prior "matrix"; the
            loss is then "forward-kl". Without it the prior is "given".
        look_ahead: length of the gradient step after which the clean gradient is taken (the paper's α); 0 = none.
        label_rate: step of the label logits (the paper's αβ/N).
        loss: "forward-kl" = L_c,1, KL(ŷ‖p), or "reverse-kl" = L_c,2, KL(p‖ŷ).
        entropy_weight: γ of the entropy loss.
        log_offset: with "reverse-kl" and the prior "given", log(ŷ + log_offset) replaces log ŷ; 1e-10 in the authors'
            code.

    Returns:
        The soft labels, the logits with their graph, the loss, and the scalars "loss", "clean/loss", "labels/step",
        "labels/moved", "labels/changed".
    """
    if clean is None and engine.kept is None:
        raise ValueError("clean is None and the engine keeps no clean gradient; pass a clean batch")
    check_log_offset(log_offset, loss, given=log_columns is None)
    classification = classification_loss("forward-kl" if log_columns is not None else loss, log_offset)
    log_soft = partial(log_soft_labels, table, batch, log_columns)
    clean_inputs, clean_label = (None, batch.label) if clean is None else (clean.inputs, clean.label)
    meta = engine(
        batch.inputs,
        partial(inner_loss, classification, log_soft),
        clean_inputs,
        partial(clean_loss, clean_label),
        look_ahead=look_ahead,
    )
    log_probs = meta.logits.log_softmax(1)
    if log_columns is None:
        direction = label_direction(log_probs.detach(), log_soft(log_probs), meta.tangent, loss, log_offset)
    else:
        direction = probability_tangent(log_probs.detach(), meta.tangent)
    table.add(batch.index, -label_rate * direction)
    after = log_soft(log_probs)
    objective = classification(log_probs, after).mean() + entropy_weight * entropy(log_probs).mean()
    scalars = {
        "loss": objective.detach(),
        "clean/loss": meta.clean_loss,
        "labels/step": label_rate * direction.abs().sum(1).mean(),
        "labels/moved": mean_move(table, batch, log_columns, log_probs, after),
        "labels/changed": (after.argmax(1) != batch.label).float().mean(),
    }
    return LabelStep(after.exp(), meta.logits, objective, scalars)


def mslg_step(
    engine: Bilevel,
    table: LabelTable,
    optimizer: Optimizer,
    batch: Batch,
    clean: Batch | None,
    *,
    loss_scale: float = 1.0,
    descend: Callable[[Optimizer, Tensor], None] | None = None,
    **options: Any,
) -> StepResult:
    """One step of MSLG, for a training loop of your own: move the labels of a batch, then train on them.

    Args:
        engine: for the network to train.
        table: soft labels of the training samples.
        optimizer: of the network's parameters.
        batch: noisy samples: index (batch,), inputs (batch, ...), given labels (batch,).
        clean: clean samples with verified labels. Not used, and may be None, if the engine has `kept` a clean gradient.
        loss_scale: factor on the training loss.
        descend: takes the optimizer and the loss, and makes the optimizer's step; by default `zero_grad`, `backward`,
            `step`, and `zero_grad` again, which frees the gradients' memory for the next step.
        **options: as in `label_step`: look_ahead, label_rate, loss, entropy_weight, log_columns, log_offset.

    Returns:
        0-d scalars to log ("loss", "clean/loss", "labels/step", "labels/moved", "labels/changed") and the
        (batch, classes) log-probabilities of the noisy batch, before the step.
    """
    engine.check_optimizer(optimizer)
    step = label_step(engine, table, batch, clean, **options)
    (descend or OptimizerStep())(optimizer, loss_scale * step.loss)
    return StepResult(step.scalars, step.logits.log_softmax(1))

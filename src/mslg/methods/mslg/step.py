"""One step of MSLG: move the labels of a batch by the meta-gradient, then train on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

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
)
from ...training.method import StepResult, descend

Loss = Literal["reverse-kl", "forward-kl"]
LOSSES = {"reverse-kl": reverse_kl, "forward-kl": forward_kl}


def label_direction(log_probs: Tensor, log_soft: Tensor, tangent: Tensor, loss: Loss) -> Tensor:
    """N/α times the gradient of the clean loss with respect to the label logits."""
    if loss == "reverse-kl":
        return probability_tangent(log_probs, tangent)
    # L_c,1 reaches the logits through the softmax of the label, which is nearly flat at K·onehot.
    soft, moved = log_soft.exp(), log_probability_tangent(log_probs, tangent)
    return soft * (moved - (soft * moved).sum(1, keepdim=True))


def log_posterior(log_probs: Tensor, label: Tensor, log_columns: Tensor, displacement: Tensor) -> Tensor:
    """log of the soft labels with the prior "matrix": row j of `log_columns` holds log T[·, j]."""
    return (log_columns[label] + log_probs + displacement).log_softmax(1)


def log_soft_labels(table: LabelTable, batch: Batch, log_columns: Tensor | None, log_probs: Tensor) -> Tensor:
    """log of the soft labels of a batch, as the table has them now."""
    if log_columns is None:
        return table.log_soft(batch.index)
    return log_posterior(log_probs.detach(), batch.label, log_columns, table.displaced(batch.index))


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
    parts: Sequence[Batch],
    clean: Batch,
    *,
    log_columns: Tensor | None = None,
    look_ahead: float = 0.002,
    loss: Loss = "reverse-kl",
) -> None:
    """Before the steps on a batch that comes in parts: the clean gradient that is the same for all of them."""
    classification = LOSSES["forward-kl" if log_columns is not None else loss]
    labels = [partial(log_soft_labels, table, part, log_columns) for part in parts]
    clean_parts = clean.parts(len(parts))
    engine.shared_clean_gradient(
        _with_losses(parts, [partial(inner_loss, classification, log_soft) for log_soft in labels]),
        _with_losses(clean_parts, [partial(clean_loss, part.label) for part in clean_parts]),
        look_ahead=look_ahead,
    )


def _with_losses(batches: Sequence[Batch], losses: Sequence[Callable[[Tensor], Tensor]]) -> list[MicroBatch]:
    samples = sum(len(batch.index) for batch in batches)
    return [MicroBatch(batch.inputs, loss, len(batch.index) / samples) for batch, loss in zip(batches, losses)]


def mslg_step(
    engine: Bilevel,
    table: LabelTable,
    optimizer: Optimizer,
    batch: Batch,
    clean: Batch | None,
    *,
    log_columns: Tensor | None = None,
    look_ahead: float = 0.002,
    label_rate: float = 1.5,
    loss: Loss = "reverse-kl",
    entropy_weight: float = 1.0,
    loss_scale: float = 1.0,
) -> StepResult:
    """One step of label learning and training, for those with a loop of their own. With `log_columns`, the logarithm of
    the transposed transition matrix, the prior is "matrix" and the loss cross entropy. Where the engine has `kept` a
    clean gradient, the clean batch is not looked at and may be None."""
    if clean is None and engine.kept is None:
        raise ValueError("there is no clean batch and the engine keeps no clean gradient; pass a clean batch")
    classification = LOSSES["forward-kl" if log_columns is not None else loss]
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
        direction = label_direction(log_probs.detach(), log_soft(log_probs), meta.tangent, loss)
    else:
        direction = probability_tangent(log_probs.detach(), meta.tangent)
    table.add(batch.index, -label_rate * direction)
    after = log_soft(log_probs)
    objective = classification(log_probs, after).mean() + entropy_weight * entropy(log_probs).mean()
    descend(optimizer, loss_scale * objective)
    scalars = {
        "loss": objective.detach(),
        "clean/loss": meta.clean_loss,
        "labels/step": label_rate * direction.abs().sum(1).mean(),
        "labels/changed": (after.argmax(1) != batch.label).float().mean(),
    }
    return StepResult(scalars, log_probs.detach())

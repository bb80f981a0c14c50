"""What MSLG decides by the clean samples: the prior, the entropy weight, and how long to fine-tune."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from ...data.batch import call
from ...data.samples import Samples
from ...data.splits import Splits
from ...networks.evaluating import evaluating
from ...runtime.distributed import broadcast_object
from ...training.method import Task

log = logging.getLogger("mslg")

FINISH_RATE = 0.03  # of the learning rate
FINISH_ROUNDS = 5


def fine_tune(
    network: nn.Module,
    task: Task,
    data: Splits,
    select: Samples,
    *,
    steps: int,
    descend: Callable[[Optimizer, Tensor], None],
) -> None:
    """Train a copy on the clean samples for as long as the loss of those held out falls; keep the best network."""
    log.info("MSLG: fine-tuning on clean samples")
    tuned = copy.deepcopy(network)
    optimizer = task.new_optimizer(tuned)
    for group in optimizer.param_groups:
        group["lr"] *= FINISH_RATE
    batches = data.clean_batches(task.epochs)
    least = before = calibrated_loss(*outputs(network, data, select))
    for _ in range(FINISH_ROUNDS):
        for _ in range(steps):
            batch = next(batches)
            descend(optimizer, F.cross_entropy(call(tuned, batch.inputs), batch.label))
        loss = calibrated_loss(*outputs(tuned, data, select))
        if not broadcast_object(loss < least):  # NaN is no improvement either
            break
        least = loss
        network.load_state_dict(tuned.state_dict())
    if least < before:
        log.info("MSLG: fine-tuning lowered the loss of held-out clean samples from %.3f to %.3f", before, least)


def outputs(network: nn.Module, data: Splits, samples: Samples | None) -> tuple[Tensor, Tensor]:
    """A network's (samples, classes) logits, and the samples' labels."""
    with evaluating(network):
        batches = [(call(network, batch.inputs).double(), batch.label) for batch in data.in_order(samples)]
    logits, label = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return logits, label


def entropy_weight_from_error(logits: Tensor, label: Tensor) -> float:
    """1 if every clean sample is classified correctly, falling to 0 at an error of a quarter. If the classes are well
    separated, predictions may be sharper than the labels alone would make them; otherwise uncertainty is right."""
    return max(0.0, 1 - 4 * float((logits.argmax(1) != label).double().mean()))


def calibrated_loss(logits: Tensor, label: Tensor) -> float:
    """Cross entropy at the best temperature for these samples: label noise makes a network underconfident on clean
    samples, which says nothing about its accuracy."""
    scaled = [F.cross_entropy(logits * factor, label) for factor in torch.logspace(-1, 1, 81, dtype=torch.float64)]
    return float(min(scaled))

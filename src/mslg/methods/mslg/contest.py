"""What MSLG asks the clean samples: which network explains them better, how sure it may be, whether last steps help."""

from __future__ import annotations

import copy
import logging

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...data.batch import call
from ...data.samples import Samples
from ...data.splits import Splits
from ...runtime.distributed import broadcast_object
from ...training.method import Task, descend

log = logging.getLogger("mslg")

FINISH_RATE = 0.03  # of the learning rate
FINISH_ROUNDS = 5


def last_steps(network: nn.Module, task: Task, data: Splits, select: Samples, *, steps: int) -> None:
    """Train a copy on the clean samples, for as long as it explains those held out better and better; the network
    becomes the best there was."""
    log.info("MSLG: last steps on clean samples")
    tuned = copy.deepcopy(network)
    optimizer = task.new_optimizer([p for p in tuned.parameters() if p.requires_grad])
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
        log.info("MSLG: they helped: the loss of held-out clean samples is %.3f, was %.3f", least, before)


@torch.inference_mode()
def outputs(network: nn.Module, data: Splits, samples: Samples | None) -> tuple[Tensor, Tensor]:
    """A network's logits for these samples, and their labels."""
    network.eval()
    found = [(call(network, batch.inputs).double(), batch.label) for batch in data.in_order(samples)]
    network.train()
    logits, label = (torch.cat(parts) for parts in zip(*found))
    return logits, label


def entropy_weight_from_error(logits: Tensor, label: Tensor) -> float:
    """1 where every clean sample is classified right, falling to 0 at an error of a quarter. Predictions may be made
    surer than the labels alone would make them if the classes can be told apart; otherwise doubt is right."""
    return max(0.0, 1 - 4 * float((logits.argmax(1) != label).double().mean()))


def calibrated_loss(logits: Tensor, label: Tensor) -> float:
    """Cross entropy at the temperature that suits these samples best: noise makes a network too humble about clean
    samples, which says nothing about its being right."""
    scaled = [F.cross_entropy(logits * factor, label) for factor in torch.logspace(-1, 1, 81, dtype=torch.float64)]
    return float(min(scaled))

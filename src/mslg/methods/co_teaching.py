"""Co-teaching (Han et al., 2018): two networks, each trained on the samples that the other finds easy.

Wrong labels have large losses before they are memorised. So each network names the part 1 − F of a batch with the
smallest losses, and the other one learns from it; F rises from 0 to the share of wrong labels in the first epochs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..data.batch import Batch, Inputs, call
from ..networks.ensemble import Ensemble
from ..runtime.distributed import gathered, own_part, ranks
from ..training.losses import cross_entropy
from ..training.method import Method, StepResult, Task, descend
from ..training.schedules import first_epoch

log = logging.getLogger("mslg")


class CoTeaching(Method):
    """Two networks, two optimizers, one batch.

    forget_rate  the share of each batch left out (the paper's τ); when not given, the task's noise rate, and where that
                 is unknown the share of doubly labelled samples whose given label is wrong
    ramp         part of the run (or epochs, from 1 on) in which that share rises from 0 to its final value
    exponent     of the share that the ramp aims at (the paper's c)
    ensemble     predict with both networks instead of the first one
    """

    needs = frozenset({"noise rate"})

    def __init__(
        self,
        task: Task,
        *,
        forget_rate: float | None = None,
        ramp: float = 10 / 200,
        exponent: float = 1.0,
        ensemble: bool = False,
    ) -> None:
        super().__init__(task)
        rate = known_rate(task) if forget_rate is None else forget_rate
        if not 0 <= rate < 1:
            raise ValueError(f"forget_rate is {rate}; it is a share of the samples, from 0 to below 1")
        if exponent <= 0:
            raise ValueError(f"exponent is {exponent}; it must be above 0, as a rule 1")
        self.forget_rate, self.exponent, self.ensemble = rate, exponent, ensemble
        self.ramp_epochs = 0 if task.warm else first_epoch("co-teaching's full forget rate", ramp, task.epochs)
        self.networks = Ensemble([task.new_network(), task.new_network()])
        self.optimizers = [
            self.add_optimizer(name, [p for p in network.parameters() if p.requires_grad])
            for name, network in self.networks.named_children()
        ]

    def forgotten(self, epoch: int) -> float:
        """F: the share of a batch left out in this epoch."""
        if epoch >= self.ramp_epochs:
            return self.forget_rate
        return float(self.forget_rate**self.exponent) * epoch / max(1, self.ramp_epochs - 1)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        first, second = (call(network, batch.inputs).log_softmax(1) for network in self.networks.children())
        first_losses, second_losses = (cross_entropy(each, batch.label) for each in (first, second))
        kept = kept_of(len(batch.label) * ranks(), self.forgotten(self.epoch))
        first_loss = mean_of(first_losses, smallest(gathered(second_losses.detach()), kept))
        second_loss = mean_of(second_losses, smallest(gathered(first_losses.detach()), kept))
        for optimizer, loss in zip(self.optimizers, (first_loss, second_loss)):
            descend(optimizer, loss)
        scalars = {
            "loss": first_loss.detach(),
            "second/loss": second_loss.detach(),
            "disagree": (first.detach().argmax(1) != second.detach().argmax(1)).float().mean(),
        }
        seen = torch.logaddexp(first.detach(), second.detach()) - math.log(2) if self.ensemble else first.detach()
        return StepResult(scalars, seen)

    def trainable_networks(self) -> list[tuple[nn.Module, Optimizer]]:
        return list(zip(self.networks.children(), self.optimizers))

    def deployed(self) -> nn.Module:
        return self.networks if self.ensemble else self.networks[0]

    def predict(self, inputs: Inputs) -> Tensor:
        return call(self.deployed(), inputs).log_softmax(1)

    def relative_cost(self, epoch: int) -> float:
        return 2.0


def known_rate(task: Task) -> float:
    """The share of wrong labels: as told, or as counted on samples that carry a given and a verified label."""
    if task.noise_rate is not None:
        return task.noise_rate
    if task.pairs is None or not len(task.pairs[0]):
        raise ValueError(
            "co-teaching has to know how many labels are wrong; pass noise_rate= with the task, or forget_rate= "
            "(0.2 is a common guess)"
        )
    given, verified = task.pairs
    rate = float((given != verified).double().mean())
    log.info("co-teaching: %.1f %% of %d doubly labelled samples are wrong", 100 * rate, len(given))
    return rate


def kept_of(samples: int, forgotten: float) -> int:
    """How many samples of a batch are kept, at least one. The addend undoes float errors such as (1 − 0.9)·10 < 1."""
    return max(1, int((1 - forgotten) * samples + 1e-9))


def mean_of(losses: Tensor, chosen: Tensor) -> Tensor:
    """The mean of the losses at these positions of the whole batch: as a rank's share, of which the mean is taken."""
    if ranks() == 1:
        return losses[chosen].mean()
    whole = len(losses) * ranks()
    counted = losses.new_zeros(whole).index_fill_(0, chosen, 1.0)[own_part(whole)]  # a mask would wait for the device
    return (losses * counted).sum() / len(chosen) * ranks()


def smallest(losses: Tensor, count: int) -> Tensor:
    """Positions of the smallest losses, in the order of the batch: another order would round the mean differently."""
    return losses.detach().topk(count, largest=False).indices.sort().values

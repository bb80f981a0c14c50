"""Co-teaching (Han et al., 2018): two networks, each trained on the samples that the other finds easy.

Wrong labels have large losses before they are memorised. So each network selects the fraction 1 − F of a batch with
the smallest losses, and the other one learns from it; F rises from 0 to the noise rate in the first epochs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from torch import Tensor, nn

from ..data.batch import Batch, call
from ..networks.ensemble import Ensemble, mean_log_probs
from ..runtime.distributed import gathered, local_slice, ranks
from ..training.losses import cross_entropy
from ..training.method import Method, StepResult, Task

log = logging.getLogger("mslg")


class CoTeaching(Method):
    """Two networks, two optimizers, one batch.

    forget_rate  fraction of each batch left out (the paper's τ); by default the task's noise rate or, if that is
                 unknown, the fraction of wrong given labels among samples with given and verified labels
    ramp         fraction of the run, or epochs if ≥ 1, over which it rises from 0 to its final value
    exponent     of the fraction that the ramp aims at (the paper's c)
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
            raise ValueError(f"forget_rate is {rate}; it is a fraction of the samples, at least 0 and below 1")
        if exponent <= 0:
            raise ValueError(f"exponent is {exponent}; it must be above 0, usually 1")
        self.forget_rate, self.exponent, self.ensemble = rate, exponent, ensemble
        self.ramp_epochs = task.warm_up_epochs(ramp, before="co-teaching's full forget rate")
        self.networks = Ensemble([task.new_network(), task.new_network()])
        self.optimizers = [self.add_optimizer(name, network) for name, network in self.networks.named_children()]

    def forgotten(self, epoch: int) -> float:
        """F: the fraction of a batch left out in this epoch."""
        if epoch >= self.ramp_epochs:
            return self.forget_rate
        return float(self.forget_rate**self.exponent) * epoch / max(1, self.ramp_epochs - 1)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        first, second = (call(network, batch.inputs).log_softmax(1) for network in self.networks.children())
        first_losses, second_losses = (cross_entropy(each, batch.label) for each in (first, second))
        kept = kept_of(len(batch.label) * ranks(), self.forgotten(self.epoch))
        first_loss = mean_of(first_losses, smallest(gathered(second_losses.detach()), kept))
        second_loss = mean_of(second_losses, smallest(gathered(first_losses.detach()), kept))
        for optimizer, loss in zip(self.optimizers, (first_loss, second_loss), strict=True):
            self.descend(optimizer, loss)
        scalars = {
            "loss": first_loss,
            "second/loss": second_loss,
            "disagree": (first.argmax(1) != second.argmax(1)).float().mean(),
        }
        return StepResult(scalars, mean_log_probs([first, second]) if self.ensemble else first)

    def deployed(self) -> nn.Module:
        return self.networks if self.ensemble else self.networks[0]

    def relative_cost(self, epoch: int) -> float:
        return 2.0


def known_rate(task: Task) -> float:
    """The fraction of wrong labels: the task's, or counted on samples with given and verified labels."""
    if task.noise_rate is not None:
        return task.noise_rate
    if task.pairs is None or not len(task.pairs[0]):
        raise ValueError(
            "co-teaching needs the fraction of wrong labels; pass noise_rate= with the task, or forget_rate= "
            "(0.2 is a common guess)"
        )
    given, verified = task.pairs
    rate = float((given != verified).double().mean())
    log.info("co-teaching: %.1f %% of the given labels of %d verified samples are wrong", 100 * rate, len(given))
    return rate


def kept_of(samples: int, forgotten: float) -> int:
    """Number of samples of a batch to keep, at least one. The addend undoes float errors such as (1 − 0.9)·10 < 1."""
    return max(1, int((1 - forgotten) * samples + 1e-9))


def mean_of(losses: Tensor, chosen: Tensor) -> Tensor:
    """Mean of the losses at these positions of the whole batch, as this rank's share of it: ranks are averaged."""
    if ranks() == 1:
        return losses[chosen].mean()
    whole = len(losses) * ranks()
    counted = losses.new_zeros(whole).index_fill_(0, chosen, 1.0)[
        local_slice(whole)
    ]  # a mask would wait for the device
    return (losses * counted).sum() / len(chosen) * ranks()


def smallest(losses: Tensor, count: int) -> Tensor:
    """Positions of the smallest losses, in the order of the batch: another order would round the mean differently."""
    return losses.detach().topk(count, largest=False).indices.sort().values

"""What a method knows about the problem."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..data.sample_table import SampleTable, file_if_large
from ..networks.compiled import uncompiled
from ..networks.head import find_head
from ..runtime.distributed import broadcast_module
from ..runtime.precision import Precision
from ..runtime.seeds import seeded
from ..runtime.sync_batch_norm import synchronize
from .optimizers import NewOptimizer, optimizer_for, takes_module
from .schedules import Schedule, constant, first_epoch

Factory = Callable[[], nn.Module]


def default_optimizer(parameters: Iterable[nn.Parameter]) -> Optimizer:
    """The paper's optimizer."""
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4)


@dataclass
class Task:
    """What a method knows about the problem: no inputs, no true labels, no test set.

    Args:
        given: (samples,) int64 given label of every sample of the source.
        classes: number of classes.
        network: a factory of networks, or a network to train.
        epochs: length of the run.
        batch_size: samples per step.
        optimizer: makes an optimizer of parameters, or of a module.
        schedule: factor on the learning rate at each point of the run.
        noise_rate: fraction of wrong labels, if known.
        transition: (classes, classes) P(given = j | true = i), if known.
        pairs: (given, verified) labels, both (n,), of samples with given and verified labels.
        head_name: name of the network's last layer, if it is not the last `Linear`.
        pretrained: of a network that is not a factory: further networks keep its body and get a new head.
        precision: that networks compute in.
        accumulate: micro-batches per batch.
        gradient_clip: largest norm of the gradient in an optimizer step, if there is one.
        warm: the run continues from an earlier one, so the warm-up is already done.
        seed: of the networks' initial weights.
        device: where networks and tables are.
        tables: folder for tables that are too large for memory.
        sync_batch_norm: with several processes, batch norm over the whole batch.
    """

    given: Tensor
    classes: int
    network: nn.Module | Factory
    epochs: int
    batch_size: int = 128
    optimizer: NewOptimizer = default_optimizer
    schedule: Schedule = constant
    noise_rate: float | None = None
    transition: Tensor | None = None
    pairs: tuple[Tensor, Tensor] | None = None
    head_name: str | None = None
    pretrained: bool = True
    precision: Precision = "float32"
    accumulate: int = 1
    gradient_clip: float | None = None
    warm: bool = False
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    tables: Path | None = None
    sync_batch_norm: bool = False
    _made: int = field(default=0, repr=False)
    _start: nn.Module | None = field(default=None, repr=False)

    def new_network(self) -> nn.Module:
        """A network to train. A factory is called each time; a given network is returned the first time, then copies of
        its initial state with a new head."""
        with seeded(torch.device("cpu"), self.seed, "network", self._made):
            if not isinstance(self.network, nn.Module):
                network = self.network()
            elif self._start is None:
                network = uncompiled(self.network)
                self._start = copy.deepcopy(network)
            else:
                network = copy.deepcopy(self._start)
                for module in [self.head(network)] if self.pretrained else network.modules():
                    if callable(draw := getattr(module, "reset_parameters", None)):
                        draw()
        network = uncompiled(network)
        self._made += 1
        if self.sync_batch_norm:
            synchronize(network)
        return broadcast_module(network.to(self.device))

    def head(self, network: nn.Module) -> nn.Module:
        """The last layer of a network."""
        return find_head(network)[1] if self.head_name is None else network.get_submodule(self.head_name)

    def new_optimizer(self, what: nn.Module | Iterable[nn.Parameter]) -> Optimizer:
        """An optimizer with the user's settings for a network, or for parameters of several."""
        if isinstance(what, nn.Module):
            return optimizer_for(self.optimizer, what)
        if takes_module(self.optimizer):
            raise ValueError(
                "the optimizer is a function of the module, and this method trains parameters of several modules "
                "together; pass a function of the parameters, an optimizer class or a name"
            )
        return self.optimizer(what)

    def new_sample_table(self, name: str, *columns: int, dtype: torch.dtype = torch.float32) -> SampleTable:
        """A table of zeros with one row per sample: in memory, or in a file of this name if it is large."""
        samples = len(self.given)
        path = file_if_large(self.tables, name, samples, torch.Size(columns).numel(), dtype)
        return SampleTable(samples, *columns, dtype=dtype, device=self.device, path=path)

    def warm_up_epochs(self, warm_up: float, *, before: str) -> int:
        """Epochs of warm-up (a fraction of the run, or epochs if ≥ 1) before a stage; 0 if the run is warm-started."""
        return 0 if self.warm else first_epoch(before, warm_up, self.epochs)

    def again(self) -> Task:
        """The same task for another method: a given network is as it was at first."""
        network = self.network if self._start is None else copy.deepcopy(self._start)
        return replace(self, network=network, warm=False, _made=0, _start=None)

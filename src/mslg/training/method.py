"""The interface between methods and the loop: a Task describes the problem, a Method learns from batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from ..data.batch import Batch, Inputs, call
from ..data.sample_table import SampleTable, file_if_large
from ..data.splits import Splits
from ..networks.head import find_head
from ..runtime.distributed import broadcast_module
from ..runtime.precision import Precision, computing
from ..runtime.seeds import seeded
from ..runtime.sync_batch_norm import synchronise
from .losses import cross_entropy
from .optimizer_step import descend as descend
from .optimizer_step import scaled_by
from .schedules import Schedule, constant

Factory = Callable[[], nn.Module]


class StepResult(NamedTuple):
    """What a step tells: 0-d tensors by metric name, and log-probabilities of the batch for the history."""

    scalars: dict[str, Tensor]
    log_probs: Tensor


def default_optimizer(parameters: Iterable[nn.Parameter]) -> Optimizer:
    """The paper's optimizer."""
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4)


@dataclass
class Task:
    """What a method is told about the problem. No input, no true label, no test set."""

    given: Tensor  # (samples,) given label of every sample of the source
    classes: int
    network: nn.Module | Factory
    epochs: int
    batch_size: int = 128
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = default_optimizer
    schedule: Schedule = constant
    noise_rate: float | None = None
    transition: Tensor | None = None  # (classes, classes): P(given = j | true = i)
    pairs: tuple[Tensor, Tensor] | None = None  # (given, verified) labels of samples that carry both
    head_name: str | None = None
    pretrained: bool = True  # of an instance: a second network keeps its body and draws only the head anew
    precision: Precision = "float32"  # that networks compute in
    accumulate: int = 1  # parts that a batch is worked through in, to need the memory of one
    warm: bool = False  # the run goes on from an earlier one: whatever warms a method up has been done
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    tables: Path | None = None  # a folder for tables that are too large for memory
    sync_batch_norm: bool = False  # with several processes: statistics of the whole batch
    _made: int = field(default=0, repr=False)
    _start: nn.Module | None = field(default=None, repr=False)

    def new_network(self) -> nn.Module:
        """A network to train. A factory is called each time; an instance is handed out first, then copies of its
        starting state with a newly drawn head."""
        with seeded(torch.device("cpu"), self.seed, "network", self._made):
            if not isinstance(self.network, nn.Module):
                network = self.network()
            elif self._start is None:
                network, self._start = self.network, copy.deepcopy(self.network)
            else:
                network = copy.deepcopy(self._start)
                for module in [self.head(network)] if self.pretrained else network.modules():
                    if callable(draw := getattr(module, "reset_parameters", None)):
                        draw()
        self._made += 1
        if self.sync_batch_norm:
            synchronise(network)
        return broadcast_module(network.to(self.device))

    def head(self, network: nn.Module) -> nn.Module:
        """The last layer: the one named, or the last Linear."""
        return find_head(network)[1] if self.head_name is None else network.get_submodule(self.head_name)

    def new_optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """An optimizer as the user wants it."""
        return self.optimizer(parameters)

    def new_sample_table(self, name: str, *columns: int, dtype: torch.dtype = torch.float32) -> SampleTable:
        """A table of zeros with one row a sample: in memory, or in a file of this name if it is large."""
        samples = len(self.given)
        path = file_if_large(self.tables, name, samples, torch.Size(columns).numel(), dtype)
        return SampleTable(samples, *columns, dtype=dtype, device=self.device, path=path)

    def again(self) -> Task:
        """The same task for another method: no network of it is made yet, an instance is as it was at the start."""
        network = self.network if self._start is None else copy.deepcopy(self._start)
        return replace(self, network=network, warm=False, _made=0, _start=None)


class Method(nn.Module):
    """Learns from noisy batches. It owns its networks, optimizers and tables, so its state_dict() is the checkpoint.

    A method overrides `step`, and of the rest what it needs. Constructor arguments are keyword-only, typed and have the
    original paper's defaults: they are the schema that recipes and flags bind to.
    """

    needs: ClassVar[frozenset[str]] = frozenset()  # of "clean set", "noise rate", "transition matrix"
    presets: ClassVar[Mapping[str, Callable[[Task], dict[str, Any]]]] = {}

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.epoch = 0
        self._optimizers: dict[str, tuple[Optimizer, list[float]]] = {}
        self.scaler = GradScaler(task.device.type) if task.precision == "fp16" else None

    def computing(self) -> AbstractContextManager[Any]:
        """Inside, networks compute in the task's precision, and steps are made as it needs."""
        return nullcontext() if self.task.precision == "float32" else self._computing_in_half()

    @contextmanager
    def _computing_in_half(self) -> Iterator[None]:
        with computing(self.task.precision, self.task.device), scaled_by(self.scaler):
            yield

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        """Before an epoch: stages, refreshes, passes over the data."""

    def before_microbatches(self, parts: list[Batch], clean: Iterator[Batch]) -> None:
        """Before the steps on a batch that comes in parts: whatever must be known of all of them first."""

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        """Learn from one noisy batch, and from `next(clean)` if the method wants it."""
        raise NotImplementedError

    def end_epoch(self, epoch: int, data: Splits) -> None:
        """After an epoch."""

    def train_on_reviewed(self, batch: Batch) -> Tensor | None:
        """Learn from reviewed samples. Their labels are sure, so by cross entropy, whatever the method does to others.
        Returns the loss."""
        losses = []
        for network, optimizer in self.trainable_networks():
            losses.append(cross_entropy(call(network, batch.inputs).log_softmax(1), batch.label).mean())
            descend(optimizer, losses[-1])
        return losses[0].detach() if losses else None

    def trainable_networks(self) -> list[tuple[nn.Module, Optimizer]]:
        """The networks that are being trained, each with its optimizer."""
        return []

    def predict(self, inputs: Inputs) -> Tensor:
        """Log-probabilities of what the method would deploy."""
        raise NotImplementedError

    def deployed(self) -> nn.Module:
        """The network behind `predict`: what is saved as the model."""
        network = self.network
        assert isinstance(network, nn.Module)
        return network

    def soft_labels(self, index: Tensor) -> Tensor | None:
        """The learned soft labels of these training samples, or None for a method that learns none."""
        return None

    def excluded(self) -> Tensor | None:
        """Indices of samples that must not be trained on."""
        return None

    def relative_cost(self, epoch: int) -> float:
        """The price of a step in this epoch, in plain training steps: for the estimate before a run."""
        return 1.0

    def checkpointed(self) -> None:
        """A checkpoint with this method's state is safely on disk."""
        for table in self._tables():
            table.checkpointed()

    def journal_bytes(self) -> int:
        """What the journals of tables in files hold since the last checkpoint."""
        return sum(table.journal_bytes() for table in self._tables())

    def _tables(self) -> list[SampleTable]:
        return [module for module in self.modules() if isinstance(module, SampleTable)]

    def add_optimizer(self, name: str, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """A new optimizer that follows the task's schedule and is part of the checkpoint."""
        return self.keep_optimizer(name, self.task.new_optimizer(parameters))

    def keep_optimizer(self, name: str, optimizer: Optimizer, *, scheduled: bool = True) -> Optimizer:
        """Make an optimizer of the method's own choice part of the checkpoint and, unless told not to, the schedule."""
        rates = [float(group["lr"]) for group in optimizer.param_groups] if scheduled else []
        self._optimizers[name] = (optimizer, rates)
        return optimizer

    def set_progress(self, epoch: int, progress: float) -> None:
        """Where in the run we are (progress from 0 to 1). Called before every step, so that stages and learning rates
        follow from the position and a resumed run is never in the wrong one."""
        self.epoch = epoch
        factor = self.learning_rate_factor(progress)
        for optimizer, rates in self._optimizers.values():
            for group, rate in zip(optimizer.param_groups, rates):
                group["lr"] = rate * factor

    def learning_rate_factor(self, progress: float) -> float:
        """The factor on every learning rate: the task's schedule, unless the method has its own."""
        return self.task.schedule(progress)

    def learning_rate(self) -> float:
        """The present learning rate of the first optimizer, for the log."""
        for optimizer, _ in self._optimizers.values():
            return float(optimizer.param_groups[0]["lr"])
        return 0.0

    def continue_from(self, state: Mapping[str, Any]) -> None:
        """Take over what an earlier run has learned: networks, tables, decisions once made. Optimizers start anew."""
        fresh = self.get_extra_state()["optimizers"]
        self.load_state_dict({**state, "_extra_state": {**state["_extra_state"], "optimizers": fresh}})

    def extra(self) -> dict[str, Any]:
        """State that is neither a parameter nor a buffer nor an optimizer."""
        return {}

    def restore_extra(self, extra: dict[str, Any]) -> None:
        """The counterpart of `extra`."""

    def get_extra_state(self) -> dict[str, Any]:
        optimizers = {name: optimizer.state_dict() for name, (optimizer, _) in self._optimizers.items()}
        scaler = {} if self.scaler is None else {"scaler": self.scaler.state_dict()}
        return {"optimizers": optimizers, "extra": self.extra(), **scaler}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name, (optimizer, _) in self._optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        if self.scaler is not None and "scaler" in state:
            self.scaler.load_state_dict(state["scaler"])
        self.restore_extra(state["extra"])


class SingleNetwork(Method):
    """A method with a single network, which is also what it deploys."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.network = task.new_network()
        self.optimizer = self.add_optimizer("network", [p for p in self.network.parameters() if p.requires_grad])

    def trainable_networks(self) -> list[tuple[nn.Module, Optimizer]]:
        return [(self.network, self.optimizer)]

    def log_probs(self, inputs: Inputs) -> Tensor:
        """Log-probabilities in the network's present mode, with their graph."""
        return call(self.network, inputs).log_softmax(1)

    def predict(self, inputs: Inputs) -> Tensor:
        return self.log_probs(inputs)

    def descend(self, loss: Tensor) -> None:
        """One optimizer step on the loss."""
        descend(self.optimizer, loss)

"""The machinery under every method: optimizers, precision, micro-batches, ranks, checkpoints, warm starts.

Authors of methods do not need to read this; `mslg.training.method` is their side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from ..data.batch import Batch, call
from ..data.sample_table import SampleTable, sharded_state
from ..runtime.precision import computing
from .losses import cross_entropy
from .optimizer_step import OptimizerStep
from .schedules import Schedule
from .task import Task


class MethodBase(nn.Module):
    """Owns networks, optimizers and per-sample tables, so that its `state_dict()` is the checkpoint.

    Attributes:
        task: what is known about the problem.
        epoch: the present epoch, from 0.
        progress: the present point of the run, from 0 to 1.
        schedule: factor on the learning rates at each point of the run: the task's, unless a method sets its own.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.epoch, self.progress = 0, 0.0
        self.schedule: Schedule = task.schedule
        self.optimizer_step = OptimizerStep(
            GradScaler(task.device.type) if task.precision == "fp16" else None, task.gradient_clip
        )
        self._optimizers: dict[str, Optimizer] = {}
        self._rates: dict[str, list[float]] = {}  # initial learning rates of the optimizers that follow the schedule
        self._trainable: dict[str, nn.Module] = {}  # networks by the name of their optimizer

    # Optimizers

    def add_optimizer(self, name: str, network: nn.Module) -> Optimizer:
        """An optimizer with the user's settings for a network's trainable parameters. It follows the schedule."""
        self._trainable[name] = network
        return self.keep_optimizer(name, self.task.new_optimizer(network))

    def keep_optimizer(self, name: str, optimizer: Optimizer, *, scheduled: bool = True) -> Optimizer:
        """Make an optimizer with the method's own settings part of the checkpoint and, by default, of the schedule."""
        self._optimizers[name] = optimizer
        if scheduled:
            self._rates[name] = [float(group["lr"]) for group in optimizer.param_groups]
        return optimizer

    def drop_optimizer(self, name: str, *, replaced_by: str | None = None) -> None:
        """Forget an optimizer and the network it trained, or let another one, with its network, take its name."""
        for kept in (self._optimizers, self._rates, self._trainable):
            if replaced_by is None:
                del kept[name]
            else:
                kept[name] = kept.pop(replaced_by)  # type: ignore[assignment]

    def trainable_networks(self) -> list[tuple[nn.Module, Optimizer]]:
        """The networks in training, each with its optimizer."""
        return [(network, self._optimizers[name]) for name, network in self._trainable.items()]

    def descend(
        self,
        optimizer: Optimizer | Sequence[Optimizer],
        loss: Tensor,
        *,
        plus: Iterable[tuple[Tensor, Tensor]] = (),
        weight: float = 1.0,
    ) -> None:
        """One step of an optimizer, or of several, on the loss; `plus` are parameters with additional gradients, which
        `weight` scales."""
        self.optimizer_step(optimizer, loss, plus=plus, weight=weight)

    def learning_rate(self) -> float:
        """The present learning rate of the first optimizer."""
        return float(next(iter(self._optimizers.values())).param_groups[0]["lr"]) if self._optimizers else 0.0

    # Called by the loop

    def set_progress(self, epoch: int, progress: float) -> None:
        """Set the present point of the run. Called before every step, so that stages and learning rates follow from it
        and a resumed run is in the right one."""
        self.epoch, self.progress = epoch, progress
        factor = self.schedule(progress)
        for name, rates in self._rates.items():
            for group, rate in zip(self._optimizers[name].param_groups, rates, strict=True):
                group["lr"] = rate * factor

    def computing(self) -> AbstractContextManager[Any]:
        """Inside, networks compute in the task's precision."""
        return computing(self.task.precision, self.task.device)

    def before_microbatches(self, microbatches: list[Batch], clean: Iterator[Batch]) -> None:
        """Before the steps on the micro-batches of a batch: for what depends on all of them."""

    def train_on_reviewed(self, batch: Batch) -> Tensor | None:
        """Train every network on reviewed samples, by cross entropy: their labels are correct. Returns the loss."""
        losses = [self.fit_labels(network, optimizer, batch)[0] for network, optimizer in self.trainable_networks()]
        return losses[0].detach() if losses else None

    def fit_labels(self, network: nn.Module, optimizer: Optimizer, batch: Batch) -> tuple[Tensor, Tensor]:
        """A step of plain cross entropy. Returns the loss and the (batch, classes) log-probabilities."""
        log_probs = call(network, batch.inputs).log_softmax(1)
        loss = cross_entropy(log_probs, batch.label).mean()
        self.descend(optimizer, loss)
        return loss, log_probs

    # Checkpoints and warm starts

    def sample_tables(self) -> list[SampleTable]:
        """Every per-sample table."""
        return [module for module in self.modules() if isinstance(module, SampleTable)]

    def sharded_state(self) -> dict[str, Any]:
        """The `state_dict()`, with what differs between processes marked."""
        return sharded_state(self)

    def continue_from(self, state: Mapping[str, Any]) -> None:
        """Start from what an earlier run has learned: networks, tables, decisions. Optimizers start afresh."""
        fresh = self.get_extra_state()["optimizers"]
        self.load_state_dict({**state, "_extra_state": {**state["_extra_state"], "optimizers": fresh}})

    def extra(self) -> dict[str, Any]:
        """State other than parameters, buffers and optimizers."""
        return {}

    def restore_extra(self, extra: dict[str, Any]) -> None:
        """Restore what `extra` returned."""

    def get_extra_state(self) -> dict[str, Any]:
        optimizers = {name: optimizer.state_dict() for name, optimizer in self._optimizers.items()}
        scaler = self.optimizer_step.scaler
        return {
            "optimizers": optimizers,
            "extra": self.extra(),
            **({} if scaler is None else {"scaler": scaler.state_dict()}),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name, optimizer in self._optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        if (scaler := self.optimizer_step.scaler) is not None and "scaler" in state:
            scaler.load_state_dict(state["scaler"])
        self.restore_extra(state["extra"])

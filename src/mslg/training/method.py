"""What the author of a method writes.

A complete method:

    class SmoothedLabels(SingleNetwork):
        '''Cross entropy with the given labels smoothed.

        smoothing  probability that is spread over all classes
        '''

        def __init__(self, task: Task, *, smoothing: float = 0.1) -> None:
            super().__init__(task)
            if not 0 <= smoothing < 1:
                raise ValueError(f"smoothing is {smoothing}; it must be at least 0 and below 1")
            self.smoothing = smoothing

        def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
            log_probs = self.log_probs(batch.inputs)
            given = cross_entropy(log_probs, batch.label).mean()
            loss = (1 - self.smoothing) * given - self.smoothing * log_probs.mean()
            self.descend(self.optimizer, loss)
            return StepResult({"loss": loss, "given/loss": given}, log_probs)

A method with several networks derives from `Method`, makes networks by `task.new_network()`, an optimizer for each by
`self.add_optimizer(name, network)`, and per-sample tables by `task.new_sample_table(name, columns)`. All of these are
saved in checkpoints; anything else that a resumed run needs goes through `extra()` and `restore_extra()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..data.batch import Batch, Inputs, call
from ..data.samples import Samples
from ..data.splits import Splits
from .losses import log_softmax
from .method_base import MethodBase
from .task import Task

__all__ = ["Method", "SingleNetwork", "StepResult", "Task"]


@dataclass
class StepResult:
    """The outcome of a step; both are detached.

    Args:
        scalars: 0-d tensors to log, by name. A name without a slash is logged as train/name.
        log_probs: (batch, classes) predicted log-probabilities of the noisy batch.
    """

    scalars: dict[str, Tensor]
    log_probs: Tensor

    def __post_init__(self) -> None:
        self.scalars = {name: value.detach() for name, value in self.scalars.items()}
        self.log_probs = self.log_probs.detach()


class Method(MethodBase):
    """Learns from noisy batches. A method writes `step` and whichever of the other hooks it needs.

    Args:
        task: what is known about the problem. All other arguments of a method's constructor are keyword-only, typed,
            and default to the original paper's values: they are the schema for recipes and command-line options.
    """

    needs: ClassVar[frozenset[str]] = frozenset()  # of "clean set", "noise rate", "transition matrix"
    presets: ClassVar[Mapping[str, Callable[[Task], dict[str, Any]]]] = {}  # named settings, for a task
    cross_fits: ClassVar[bool] = False  # whether every sample is predicted by networks that have not seen its label
    trains_on_noisy: ClassVar[bool] = True  # whether the noisy samples are trained on, so that their weights matter
    advice: str = ""  # what to try if training diverges or collapses, such as "a smaller label_rate"
    saves_memory: bool = False  # whether memory counts more than time: what is freed is then returned to the system
    label_advice: ClassVar[str] = ""  # what to try if the soft labels do not move, such as "a larger label_rate"

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        """Called before an epoch: for stages, and for passes over the data. Not called again when a run is resumed
        within the epoch, so whatever is set here must be part of the state."""

    def idle(self) -> bool:
        """Whether the present epoch has no steps, because `begin_epoch` has done its work."""
        return False

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        """Learn from one noisy batch, and from `next(clean)` if the method uses clean samples. The present stage
        follows from `self.epoch` and `self.progress`."""
        raise NotImplementedError

    def end_epoch(self, epoch: int, data: Splits) -> None:
        """Called after an epoch."""

    def predict(self, inputs: Inputs) -> Tensor:
        """(batch, classes) log-probabilities: by default those of the deployed network."""
        return log_softmax(call(self.deployed(), inputs))

    def deployed(self) -> nn.Module:
        """The network to save as the model: by default `self.network`."""
        return self.get_submodule("network")

    def soft_labels(self, index: Tensor) -> Tensor | None:
        """(n, classes) learned soft labels of these training samples, or None if the method learns none."""
        return None

    def unseen(self, index: Tensor) -> Tensor | None:
        """(n, classes) log-probabilities of these training samples by networks that have not seen their given labels;
        None if there are no such networks."""
        return None

    def unseen_clean(self, clean: Samples) -> Tensor | None:
        """The same for clean samples, by networks that have not seen their verified labels."""
        return None

    def class_shift(self) -> Tensor | None:
        """(classes,) log of how much more frequent each class is among noisy samples than among clean ones; None if the
        method does not estimate it."""
        return None

    def unseen_controls(self, clean: Samples) -> Mapping[str, Tensor]:
        """(n,) classes that networks trained as a control is, by its name, predict for clean samples that they have not
        seen: where no clean samples are held out, these are what the method is compared with."""
        return {}

    def start_labels(self, index: Tensor) -> Tensor | None:
        """(n, classes) the soft labels of these samples before any was learned: by default the given labels; None if
        the method learns none."""
        soft = self.soft_labels(index)
        if soft is None:
            return None
        given = self.task.given.to(soft.device)[index.to(soft.device)]
        return torch.zeros_like(soft).scatter_(1, given.unsqueeze(1), 1.0)

    def labels_fixed(self, epochs: int) -> str | None:
        """Why this many epochs cannot have moved the soft labels, such as "label_rate is 0"; None if they can have."""
        return None

    def excluded(self) -> Tensor | None:
        """Indices of samples to leave out of training, or None."""
        return None

    def before_estimate(self, data: Splits) -> None:
        """Called before the cost of a run on these data is estimated."""

    def relative_cost(self, epoch: int) -> float:
        """Cost of a step in this epoch relative to plain training, for the estimate before a run."""
        return 1.0

    def cross_entropy_step(self, batch: Batch) -> StepResult:
        """A step of plain cross entropy on the batch's labels, for the first of the networks in training."""
        loss, log_probs = self.fit_labels(*self.trainable_networks()[0], batch)
        return StepResult({"loss": loss}, log_probs)


class SingleNetwork(Method):
    """A method with one network, which is also the one deployed."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.restart()

    def restart(self) -> None:
        """Begin with a new network and a new optimizer."""
        self.network = self.task.new_network().train()
        self.optimizer = self.add_optimizer("network", self.network)

    def log_probs(self, inputs: Inputs) -> Tensor:
        """(batch, classes) log-probabilities in the network's present mode, with their graph."""
        return log_softmax(call(self.network, inputs))

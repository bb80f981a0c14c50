"""Look ahead along the noisy gradient, take the clean gradient there, and differentiate the predictions along it.

With θ̂ = θ − look_ahead·∇L(θ; φ) and g = ∇(clean loss) at θ̂, the derivative of the clean loss with respect to anything
that enters L through the logits z_j of training sample j needs only the tangent D_g z_j = d/dε z_j(θ + εg). Every
meta-learning method here uses that tangent; none needs second-order autograd.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..data.batch import Inputs
from ..networks.compiled import uncompiled
from ..networks.head import find_head
from ..networks.optimizer import check_optimizer
from ..registry import expect_name
from ..runtime.distributed import averaged
from ..runtime.precision import gradient
from .borrowed_weights import borrowed, buffers_of, called
from .compiled_passes import CompiledPasses
from .fallbacks import MODES, Fallbacks, Mode
from .recomputable_activations import RecomputableActivations
from .spendable_weights import Spendable
from .tangent_modes import Direction, ForwardPass, RandomState

log = logging.getLogger("mslg")

Loss = Callable[[Tensor], Tensor]


@dataclass
class BilevelOutput:
    """What a clean batch says about a noisy batch.

    Args:
        logits: (batch, classes) of the noisy batch, with their graph, to compute the training loss from.
        tangent: (batch, classes) derivative of the logits along the clean gradient.
        clean_loss: 0-d clean loss at the look-ahead weights.
    """

    logits: Tensor
    tangent: Tensor
    clean_loss: Tensor


class MicroBatch(NamedTuple):
    """A part of a batch, with the loss of its logits."""

    inputs: Inputs
    loss: Loss
    share: float  # of the whole batch


class KeptGradient(NamedTuple):
    """A clean gradient for later steps."""

    direction: list[Tensor | None]  # g, one entry per parameter
    loss: Tensor  # 0-d clean loss at the time
    steps: int  # how many more steps may use it


class Bilevel:
    """The bilevel engine for one network.

    Args:
        network: the network whose weights look ahead.
        mode: "exact"; "compiled" (exact too: its passes through torch's compiler, which takes half a minute at first);
            "difference" (one more forward pass); "double-backward" (the reference); or "head" (only the last layer
            looks ahead and moves: cheapest). Where the network's operators do not support a mode, the next
            best one is used, which is logged once.
        central: with mode "difference", use two more forward passes and be more precise.
        recompute: free the noisy graph before the clean pass and record it again afterwards: less memory, one more
            forward pass.
        clean_every: use a clean gradient for this many steps. While one is `kept`, no clean batch is needed.
        head: the head, for mode "head"; the last Linear layer by default.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        mode: Mode = "exact",
        central: bool = False,
        recompute: bool = False,
        clean_every: int = 1,
        head: nn.Module | None = None,
    ) -> None:
        expect_name("mode", mode, MODES)
        if not isinstance(clean_every, int) or clean_every < 1:
            raise ValueError(f"clean_every is {clean_every}; it must be a whole number of steps, 1 or more")
        self.network = network = uncompiled(network)
        self.mode = mode
        self.recompute = recompute
        self.clean_every = clean_every
        self.kept: KeptGradient | None = None
        # Whether look-ahead weights are freed one by one: until that turns out to be too early. A compiled backward
        # pass needs all of them to its end.
        self.spends = mode != "compiled"
        self.compiled: CompiledPasses | Exception | None = CompiledPasses(network) if mode == "compiled" else None
        self.fallbacks = Fallbacks(mode, central=central)
        trainable = {name: p for name, p in network.named_parameters() if p.requires_grad}
        if not trainable:
            raise ValueError("the network has no trainable parameter; unfreeze at least its last layer")
        if mode == "head":
            inside = {id(p) for p in (head or find_head(network)[1]).parameters()}
            trainable = {name: p for name, p in trainable.items() if id(p) in inside}
            if not trainable:
                raise ValueError("the head has no trainable parameter; unfreeze it, or name another layer with head=")
        self.names = list(trainable)
        self.parameters: list[Tensor] = list(trainable.values())
        self._optimizers: WeakSet[Optimizer] = WeakSet()  # known to be of this network
        self._unused: set[str] | None = None  # parameters without a gradient, once it is known

    def __call__(
        self, inputs: Inputs, inner_loss: Loss, clean_inputs: Inputs, clean_loss: Loss, *, look_ahead: float
    ) -> BilevelOutput:
        """One forward pass of the noisy batch, and the derivative of its logits along the clean gradient.

        Args:
            inputs: of the noisy batch.
            inner_loss: from its (batch, classes) logits to the loss whose gradient is followed.
            clean_inputs: of the clean batch. Not needed, like all that follows, while a clean gradient is kept.
            clean_loss: from the clean batch's logits to the clean loss.
            look_ahead: the length of the step along the noisy gradient, 0 for none.
        """
        if self.kept is not None:
            forward, (direction, loss, steps) = self.forward(inputs), self.kept
            self.kept = KeptGradient(direction, loss, steps - 1) if steps > 1 else None
        else:
            forward, direction, loss = self._look(inputs, inner_loss, clean_inputs, clean_loss, look_ahead)
            if self.clean_every > 1:
                direction = self.keep(direction, loss, self.clean_every - 1)
        return BilevelOutput(forward.logits, self.tangent(forward, direction), loss)

    def keep(self, direction: Direction, loss: Tensor, steps: int) -> list[Tensor | None]:
        """Use this clean gradient, new or from a checkpoint, in the next steps. It is stored in the memory layout of
        the parameters, because a convolution rounds differently with other strides."""
        kept = [
            None if d is None else torch.empty_like(p).copy_(d) for p, d in zip(self.parameters, direction, strict=True)
        ]
        self.kept = KeptGradient(kept, loss, steps)
        return kept

    def _look(
        self, inputs: Inputs, inner_loss: Loss, clean_inputs: Inputs, clean_loss: Loss, look_ahead: float
    ) -> tuple[ForwardPass, list[Tensor | None], Tensor]:
        """The noisy pass, and the clean gradient and loss at the look-ahead weights."""
        if look_ahead == 0:
            # The clean gradient is at θ itself: taken first, its activations are freed before the noisy pass starts.
            direction, loss = self.clean_gradient(self.parameters, clean_inputs, clean_loss)
            return self.forward(inputs), direction, loss
        forward = self.forward(inputs)
        spendable = Spendable(self.look_ahead(forward, inner_loss, look_ahead), self.spends)
        if self.recompute:
            forward.logits = forward.logits.detach()
        try:
            direction, loss = self.clean_gradient(spendable, clean_inputs, clean_loss)
        except RuntimeError:
            if not spendable.spent:
                raise
            # Something reads a weight after its gradient is known, such as a checkpoint with a detached weight.
            self.spends = False
            if self.recompute:
                forward.record_again()
            ahead = self.look_ahead(forward, inner_loss, look_ahead)
            direction, loss = self.clean_gradient(ahead, clean_inputs, clean_loss)
        if self.recompute:
            forward.record_again()
        return forward, direction, loss

    def forward(self, inputs: Inputs, *, keep_statistics: bool = False) -> ForwardPass:
        """The noisy forward pass, recorded. `keep_statistics` leaves batch-norm buffers unchanged."""
        random, buffers = RandomState(self.parameters[0].device), buffers_of(self.network)
        activations = RecomputableActivations()
        own = buffers_of(self.network) if keep_statistics else dict(self.network.named_buffers())
        logits = self._by_compiler({**dict(self.network.named_parameters()), **own}, inputs)
        if logits is None:
            statistics = borrowed(self.network, own) if keep_statistics else nullcontext()
            with statistics, self._sparing(activations):
                logits = called(self.network, inputs)
        return ForwardPass(
            self.network, self.names, self.parameters, inputs, random, buffers, logits, activations, self.compiled
        )

    def look_ahead(self, forward: ForwardPass, inner_loss: Loss, distance: float) -> list[Tensor]:
        """θ̂: the weights after one plain gradient step of the inner loss."""
        loss = inner_loss(forward.logits)
        gradients = gradient(loss, self.parameters, retain_graph=not self.recompute, allow_unused=True)
        forward.activations.forget()
        filled = [torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, gradients, strict=True)]
        del gradients
        return self._step(filled, distance)

    def _step(self, gradients: list[Tensor], distance: float) -> list[Tensor]:
        """The weights a step along the gradients, each of which is freed as soon as it is used: the list is emptied."""
        # Gradients from autograd are those of this process's batch alone, even if the network is wrapped.
        moves = list(averaged(gradients))
        gradients.clear()
        moves.reverse()
        return [torch.add(p.detach(), moves.pop(), alpha=-distance) for p in self.parameters]

    def clean_gradient(
        self, weights: list[Tensor] | Spendable, clean_inputs: Inputs, clean_loss: Loss
    ) -> tuple[list[Tensor | None], Tensor]:
        """g: the gradient of the clean loss at these weights, and the loss. Batch-norm buffers stay unchanged."""
        if isinstance(weights, Spendable):
            leaves = weights.leaves()
        else:
            leaves = [weight.detach().requires_grad_() for weight in weights]
        tensors = {name: p.detach() for name, p in self.network.named_parameters()} | buffers_of(self.network)
        tensors.update(zip(self.names, leaves, strict=True))
        with torch.enable_grad(), borrowed(self.network, tensors):  # until the gradient is taken
            logits = self._by_compiler(tensors, clean_inputs)
            if logits is None:
                with self._sparing(RecomputableActivations()):
                    logits = called(self.network, clean_inputs)
            loss = clean_loss(logits)
            gradients = gradient(loss, leaves, allow_unused=True)
        self._check_used(gradients)
        *used, loss = averaged([*(g for g in gradients if g is not None), loss.detach()])
        remaining = iter(used)
        return [None if g is None else next(remaining) for g in gradients], loss

    def _by_compiler(self, tensors: Mapping[str, Tensor], inputs: Inputs) -> Tensor | None:
        """The logits by compiled passes with these weights and buffers. None in other modes, and once it has failed:
        the reason is kept for the log."""
        if not isinstance(self.compiled, CompiledPasses):
            return None
        try:
            return self.compiled.logits(tensors, inputs)
        except Exception as error:  # of the compiler, or the network's own, which the pass that follows will raise
            if isinstance(error, torch.OutOfMemoryError):
                raise
            self.compiled = error
            return None

    def _sparing(self, activations: RecomputableActivations) -> AbstractContextManager[None]:
        """Inside, a pass is recorded without what can be recomputed. Not with `recompute`: there the noisy graph and
        the clean one never exist together, and each needs no more than that of a plain step."""
        return nullcontext() if self.recompute else activations.watching()

    def check_optimizer(self, optimizer: Optimizer) -> None:
        """Raise if an optimizer holds parameters of another network."""
        if optimizer not in self._optimizers:
            check_optimizer(optimizer, self.network)
            self._optimizers.add(optimizer)

    def _check_used(self, gradients: Sequence[Tensor | None]) -> None:
        """Name, once, the parameters that the clean loss does not depend on: labels cannot be learned through them."""
        unused = {name for name, g in zip(self.names, gradients, strict=True) if g is None}
        if unused and self._unused is None:
            first = sorted(unused)[0]
            log.warning(
                "%s: %d of %d trainable parameters have no gradient in the clean pass, such as %s; the label gradient "
                "takes them for constants. If the network does use them, a function of its own hides them from "
                "autograd (a checkpoint of another library, a detach)",
                type(self.network).__name__,
                len(unused),
                len(self.names),
                first,
            )
        self._unused = unused | (self._unused or set())

    def shared_clean_gradient(
        self, microbatches: Sequence[MicroBatch], clean_microbatches: Sequence[MicroBatch], *, look_ahead: float
    ) -> None:
        """Keep the clean gradient of a whole batch for the steps on its micro-batches, so that together they equal the
        step on the whole batch. The graph of a micro-batch is freed before the next one."""
        ahead = [p.detach() for p in self.parameters]
        if look_ahead:
            total = [torch.zeros_like(p) for p in ahead]
            for inputs, loss, share in microbatches:
                forward = self.forward(inputs, keep_statistics=True)
                gradients = gradient(loss(forward.logits), self.parameters, allow_unused=True)
                total = [t if g is None else t + share * g for t, g in zip(total, gradients, strict=True)]
            ahead = self._step(total, look_ahead)
        direction: list[Tensor | None] = [None] * len(ahead)
        clean_loss = torch.zeros((), device=ahead[0].device)
        for inputs, loss, share in clean_microbatches:
            part, value = self.clean_gradient(ahead, inputs, loss)
            direction = [
                t if g is None else share * g + (0 if t is None else t) for t, g in zip(direction, part, strict=True)
            ]
            clean_loss = clean_loss + share * value
        self.keep(direction, clean_loss, self.clean_every * len(microbatches))

    def tangent(self, forward: ForwardPass, direction: Direction) -> Tensor:
        """(batch, classes) derivative of the pass's logits along the direction."""
        if all(move is None for move in direction):
            return torch.zeros_like(forward.logits)
        tangent = self.fallbacks.tangent(forward, direction)
        forward.activations.forget()
        return tangent

    def relative_cost(self, look_ahead: float) -> float:
        """The cost of a step relative to a plain one, measured by `benchmarks/step_cost.py` on the paper's network."""
        cost = {"exact": 3.4, "compiled": 2.8, "difference": 3.3, "double-backward": 6.0, "head": 1.5}[self.mode]
        cost += (0.4 if self.recompute else 0) - (0.7 if look_ahead == 0 and self.mode != "head" else 0)
        kept = {"exact": 1.6, "compiled": 1.6, "difference": 1.4, "double-backward": 4.0, "head": 1.0}[self.mode]
        return (cost + (self.clean_every - 1) * kept) / self.clean_every

    @property
    def way(self) -> str:
        """How tangents are computed at present, in words."""
        mode = self.fallbacks.current
        return mode.description if mode.exact else f"{mode.description} (approximate)"

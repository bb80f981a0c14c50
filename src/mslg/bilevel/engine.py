"""Look ahead along the noisy gradient, take the clean gradient there, and see how the predictions move along it.

With θ̂ = θ − look_ahead·∇L(θ; φ) and g = ∇(clean loss) at θ̂, the derivative of the clean loss with respect to anything
that enters L through the logits z_j of training sample j needs only the tangent D_g z_j = d/dε z_j(θ + εg). Every
meta-learning method here consumes that tangent; none needs second-order autograd.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from ..data.batch import Inputs, call
from ..networks.head import find_head
from ..registry import expect_name
from ..runtime.distributed import averaged
from ..runtime.precision import gradient
from . import tangent_modes as tangents
from .recomputable_activations import RecomputableActivations
from .rules import Unsupported
from .tangent_modes import Direction, Pass, RandomState, Way

log = logging.getLogger("mslg")

Mode = Literal["exact", "difference", "double-backward", "head"]
MODES: tuple[Mode, ...] = get_args(Mode)
Loss = Callable[[Tensor], Tensor]


class Rung(NamedTuple):
    way: Way
    description: str
    exact: bool = True


_GRAPH = Rung(tangents.from_graph, "the recorded graph")
_DUAL = Rung(tangents.dual_numbers, "forward-mode differentiation of a second pass")
_DUAL_MATH = Rung(tangents.dual_numbers_with_math_attention, "forward-mode differentiation with math attention")
_TWICE = Rung(tangents.double_backward, "double backward")
_TWICE_MATH = Rung(tangents.double_backward_with_math_attention, "double backward with math attention")
_ONE_SIDED = Rung(tangents.one_sided_difference, "a one-sided finite difference", exact=False)
_CENTRAL = Rung(tangents.central_difference, "a central finite difference", exact=False)

_EXACT = [_GRAPH, _DUAL, _DUAL_MATH, _TWICE, _TWICE_MATH, _CENTRAL]
LADDERS: dict[Mode, list[Rung]] = {
    "exact": _EXACT,
    "head": _EXACT,
    "double-backward": [_TWICE, _TWICE_MATH, _CENTRAL],
    "difference": [_ONE_SIDED],
}


@dataclass
class Meta:
    """What one look at the clean batch tells about the noisy batch."""

    logits: Tensor  # (batch, classes) of the noisy batch, with their graph: the training loss goes on from here
    tangent: Tensor  # (batch, classes): D_g of those logits
    clean_loss: Tensor  # 0-d, at the looked-ahead weights


class Part(NamedTuple):
    """A part of a batch, with the loss of its logits."""

    inputs: Inputs
    loss: Loss
    share: float  # of the whole batch


class Kept(NamedTuple):
    """A clean gradient for the steps to come."""

    direction: list[Tensor | None]  # g, one entry a parameter
    loss: Tensor  # 0-d: the clean loss when it was taken
    steps: int  # how many steps may still use it


class Bilevel:
    """The engine for one network.

    `mode`: "exact" (default), "difference" (one more forward pass; `central` makes it two and more precise),
    "double-backward" (the reference) or "head" (only the last layer looks ahead and moves: cheapest).
    `recompute` frees the noisy graph before the clean pass and records it again afterwards: less memory, one more
    forward pass. With `clean_every` a clean gradient serves so many steps: those that find it `kept` look at no clean
    batch. Where an operator does not support the mode, the next way is taken, told once and remembered.
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
        self.network = network
        self.mode = mode
        self.recompute = recompute
        self.clean_every = clean_every
        self.kept: Kept | None = None
        self._ladder = [_CENTRAL] if mode == "difference" and central else list(LADDERS[mode])
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
        self._refusals: list[str] = []  # of ways given up, until they are told

    def __call__(
        self, inputs: Inputs, inner_loss: Loss, clean_inputs: Inputs, clean_loss: Loss, *, look_ahead: float
    ) -> Meta:
        """The noisy batch's logits, their tangent along the clean gradient, and the clean loss. Where a clean gradient
        is kept, neither the clean batch nor a look-ahead is needed."""
        if self.kept is not None:
            done, (direction, loss, steps) = self.forward(inputs), self.kept
            self.kept = Kept(direction, loss, steps - 1) if steps > 1 else None
        else:
            done, direction, loss = self._look(inputs, inner_loss, clean_inputs, clean_loss, look_ahead)
            if self.clean_every > 1:
                direction = self.keep(direction, loss, self.clean_every - 1)
        return Meta(done.logits, self.tangent(done, direction), loss)

    def keep(self, direction: Direction, loss: Tensor, steps: int) -> list[Tensor | None]:
        """Use this clean gradient in the next steps: one just taken, or one out of a checkpoint. It is kept in the
        layout of the parameters, because with other strides a convolution rounds otherwise."""
        kept = [None if d is None else torch.empty_like(p).copy_(d) for p, d in zip(self.parameters, direction)]
        self.kept = Kept(kept, loss, steps)
        return kept

    def _look(
        self, inputs: Inputs, inner_loss: Loss, clean_inputs: Inputs, clean_loss: Loss, look_ahead: float
    ) -> tuple[Pass, list[Tensor | None], Tensor]:
        """The noisy pass, and the clean gradient and loss where a step along the noisy gradient leads."""
        if look_ahead == 0:
            # The clean gradient is at θ itself: taken first, its activations are gone before the noisy pass starts.
            direction, loss = self.clean_gradient(self.parameters, clean_inputs, clean_loss)
            done = self.forward(inputs)
        else:
            spare = RecomputableActivations()
            with nullcontext() if self.recompute else spare.watching():
                done = self.forward(inputs, keep_statistics=self.recompute)
            ahead = self.look_ahead(done, inner_loss, look_ahead)
            if self.recompute:
                done.logits = done.logits.detach()
            else:
                spare.release(done.logits)
            direction, loss = self.clean_gradient(ahead, clean_inputs, clean_loss)
            del ahead
            if self.recompute:
                with done.random.replayed():
                    done.logits = call(self.network, inputs)
        return done, direction, loss

    def forward(self, inputs: Inputs, *, keep_statistics: bool = False) -> Pass:
        """The noisy forward pass, recorded. `keep_statistics` leaves batch-norm buffers as they were."""
        random = RandomState(self.parameters[0].device)
        if keep_statistics:
            logits = tangents.call_with(self.network, dict(self.network.named_parameters()), inputs)
        else:
            logits = call(self.network, inputs)
        return Pass(self.network, self.names, self.parameters, inputs, random, logits)

    def look_ahead(self, done: Pass, inner_loss: Loss, distance: float) -> list[Tensor]:
        """θ̂: one plain gradient step of the inner loss."""
        loss = inner_loss(done.logits)
        found = gradient(loss, self.parameters, retain_graph=not self.recompute, allow_unused=True)
        return self._ahead([torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, found)], distance)

    def _ahead(self, gradient: list[Tensor], distance: float) -> list[Tensor]:
        # Gradients that autograd hands out are of this process's batch alone, whatever wraps the network.
        still = [p.detach() for p in self.parameters]
        return list(torch._foreach_add(still, averaged(gradient), alpha=-distance))

    def clean_gradient(
        self, weights: list[Tensor], clean_inputs: Inputs, clean_loss: Loss
    ) -> tuple[list[Tensor | None], Tensor]:
        """g: the gradient of the clean loss at these weights, and the loss. Batch-norm buffers are left alone."""
        leaves = [weight.detach().requires_grad_() for weight in weights]
        every = {name: p.detach() for name, p in self.network.named_parameters()}
        every.update(zip(self.names, leaves))
        with torch.enable_grad():
            loss = clean_loss(tangents.call_with(self.network, every, clean_inputs))
            found = gradient(loss, leaves, allow_unused=True)
        *used, loss = averaged([*(g for g in found if g is not None), loss.detach()])
        rest = iter(used)
        return [None if g is None else next(rest) for g in found], loss

    def shared_clean_gradient(self, parts: Sequence[Part], clean_parts: Sequence[Part], *, look_ahead: float) -> None:
        """The same look for a batch that comes in parts, as is the clean one: the clean gradient is kept for the steps
        on them, which are then those on the whole batch. A graph lives no longer than its part is worked on."""
        ahead = [p.detach() for p in self.parameters]
        if look_ahead:
            total = [torch.zeros_like(p) for p in ahead]
            for inputs, loss, share in parts:
                done = self.forward(inputs, keep_statistics=True)
                found = gradient(loss(done.logits), self.parameters, allow_unused=True)
                total = [t if g is None else t + share * g for t, g in zip(total, found)]
            ahead = self._ahead(total, look_ahead)
        direction: list[Tensor | None] = [None] * len(ahead)
        clean_loss = torch.zeros((), device=ahead[0].device)
        for inputs, loss, share in clean_parts:
            here, value = self.clean_gradient(ahead, inputs, loss)
            direction = [t if g is None else share * g + (0 if t is None else t) for t, g in zip(direction, here)]
            clean_loss = clean_loss + share * value
        self.keep(direction, clean_loss, self.clean_every * len(parts))

    def tangent(self, done: Pass, direction: Direction) -> Tensor:
        """D_direction of the pass's logits, by the first way on the ladder that the network's operators support."""
        if all(move is None for move in direction):
            return torch.zeros_like(done.logits)
        while True:
            rung = self._ladder[0]
            try:
                tangent = rung.way(done, direction).detach()
            except (Unsupported, NotImplementedError, RuntimeError) as error:
                if len(self._ladder) == 1 or isinstance(error, torch.OutOfMemoryError):
                    raise
                self._descend(error)
            else:
                if self._refusals:
                    self._tell()
                return tangent

    def _descend(self, error: Exception) -> None:
        """Give up the present way for good."""
        failed = self._ladder.pop(0)
        reason = " ".join(str(error).split())[:160]
        missing = f"has no rule for {reason}" if isinstance(error, Unsupported) else f"fails ({reason})"
        self._refusals.append(f"{failed.description} {missing}")
        log.debug("%s: %s", type(self.network).__name__, self._refusals[-1])

    def _tell(self) -> None:
        """One line, once a way has been found: what is used, and why not what was asked for."""
        rung = self._ladder[0]
        log.log(
            logging.INFO if rung.exact else logging.WARNING,
            "%s: %s tangent by %s, because %s%s",
            type(self.network).__name__,
            "exact" if rung.exact else "approximate",
            rung.description,
            self._refusals[0],
            " and no other exact way works either" if len(self._refusals) > 1 and not rung.exact else "",
        )
        self._refusals.clear()

    def relative_cost(self, look_ahead: float) -> float:
        """The price of a step in plain ones, as `benchmarks/step_cost.py` has measured it on the paper's network."""
        price = {"exact": 3.4, "difference": 3.3, "double-backward": 6.0, "head": 1.5}[self.mode]
        price += (0.4 if self.recompute else 0) - (0.7 if look_ahead == 0 and self.mode != "head" else 0)
        kept = {"exact": 1.6, "difference": 1.4, "double-backward": 4.0, "head": 1.0}[self.mode]
        return (price + (self.clean_every - 1) * kept) / self.clean_every

    @property
    def way(self) -> str:
        """How tangents are computed at present, in words."""
        rung = self._ladder[0]
        return rung.description if rung.exact else f"{rung.description} (approximate)"

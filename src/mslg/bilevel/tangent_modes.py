"""Ways to the directional derivative of a network's logits, from the cheapest exact one to one that always works."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..data.batch import Inputs, arguments, logits_of
from ..runtime.precision import full_precision, half
from .graph_walk import graph_tangent

Direction = Sequence[Tensor | None]


class RandomState:
    """The state of the generators that dropout draws from, so that a later pass can draw the same masks."""

    def __init__(self, device: torch.device) -> None:
        self.devices = [device] if device.type == "cuda" else []
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if self.devices else None

    @contextmanager
    def replayed(self) -> Iterator[None]:
        with torch.random.fork_rng(devices=self.devices):
            torch.set_rng_state(self.cpu)
            if self.cuda is not None:
                torch.cuda.set_rng_state(self.cuda, self.devices[0])
            yield


@dataclass
class Pass:
    """One forward pass of the noisy batch: everything needed to differentiate or to repeat it."""

    network: nn.Module
    names: list[str]
    parameters: list[Tensor]
    inputs: Inputs
    random: RandomState
    logits: Tensor

    def again(self, parameters: Sequence[Tensor]) -> Tensor:
        """The logits with other parameters: same dropout masks, no buffer of the network touched."""
        with self.random.replayed():
            return call_with(self.network, dict(zip(self.names, parameters)), self.inputs)


def call_with(network: nn.Module, parameters: dict[str, Tensor], inputs: Inputs) -> Tensor:
    """The logits with these parameters. Buffers are cloned, so batch-norm statistics stay as they are."""
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    args, kwargs = arguments(inputs)
    return logits_of(functional_call(network, (parameters, buffers), args, kwargs))


def from_graph(done: Pass, direction: Direction) -> Tensor:
    """Exact, from the recorded graph of the pass: two forward passes' worth of arithmetic and no second pass."""
    return graph_tangent(done.logits, done.parameters, direction)


def dual_numbers(done: Pass, direction: Direction) -> Tensor:
    """Exact, by forward-mode differentiation of a second pass: three forward passes' worth."""
    with torch.no_grad(), forward_ad.dual_level():
        duals = [
            parameter.detach() if move is None else forward_ad.make_dual(parameter.detach(), move)
            for parameter, move in zip(done.parameters, direction)
        ]
        tangent: Tensor | None = forward_ad.unpack_dual(done.again(duals)).tangent
    return torch.zeros_like(done.logits) if tangent is None else tangent


def dual_numbers_with_math_attention(done: Pass, direction: Direction) -> Tensor:
    """The same with attention written out, because the fused kernels know no forward mode."""
    with sdpa_kernel(SDPBackend.MATH):
        return dual_numbers(done, direction)


def double_backward(done: Pass, direction: Direction) -> Tensor:
    """Exact, by reverse mode twice: Jᵀc is linear in c, and its derivative with respect to c is J."""
    pairs = [(p, d) for p, d in zip(done.parameters, direction) if d is not None]
    parameters, moves = [p for p, _ in pairs], [d for _, d in pairs]
    fresh = [p.detach().requires_grad_() for p in parameters]
    stand_in = iter(fresh)
    every = [next(stand_in) if d is not None else p.detach() for p, d in zip(done.parameters, direction)]
    with torch.enable_grad():
        logits = done.again(every)
        cotangent = torch.zeros_like(logits, requires_grad=True)
        pulled = torch.autograd.grad(logits, fresh, cotangent, create_graph=True, allow_unused=True)
        used = [(pull, move) for pull, move in zip(pulled, moves) if pull is not None]
        if not all(pull.requires_grad for pull, _ in used):
            # A custom function that detaches in its backward pass: the tangent would miss all that is before it.
            raise RuntimeError("the gradient of some parameter cannot be differentiated again")
        (tangent,) = torch.autograd.grad(
            [pull for pull, _ in used], cotangent, [move for _, move in used], allow_unused=True
        )
    return torch.zeros_like(logits) if tangent is None else tangent.detach()


def double_backward_with_math_attention(done: Pass, direction: Direction) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return double_backward(done, direction)


def one_sided_difference(done: Pass, direction: Direction) -> Tensor:
    """Approximate, by one more forward pass a little way along the direction. Works with any operator."""
    if half(done.logits.device) is not None:  # the pass itself is then too coarse to subtract from
        return central_difference(done, direction)
    step = _step(done, direction)
    return (_moved(done, direction, step) - done.logits.detach()) / step


def central_difference(done: Pass, direction: Direction) -> Tensor:
    """Approximate to second order, by two more forward passes."""
    step = _step(done, direction)
    return (_moved(done, direction, step) - _moved(done, direction, -step)) / (2 * step)


def _moved(done: Pass, direction: Direction, step: Tensor) -> Tensor:
    # In half precision so small a step would be rounded away.
    with torch.no_grad(), full_precision(done.logits.device):
        moved = [p.detach() if d is None else p.detach() + step * d for p, d in zip(done.parameters, direction)]
        return done.again(moved)


def _step(done: Pass, direction: Direction) -> Tensor:
    """A fixed fraction of the weights' own size, whatever the length of the direction. It stays a tensor, so that a GPU
    need not be waited for."""
    moving = [(p.detach(), d) for p, d in zip(done.parameters, direction) if d is not None]
    size = torch.linalg.vector_norm(torch.stack(torch._foreach_norm([p for p, _ in moving])))
    length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm([d for _, d in moving])))
    fraction = _FRACTION.get(done.logits.dtype, 1e-3)
    step: Tensor = fraction * size.clamp_min(1e-3) / length.clamp_min(torch.finfo(length.dtype).tiny)
    return step


# Measured on ReLU networks, where every kink that the step crosses costs more than rounding does: docs/how-it-works.md.
_FRACTION = {torch.float64: 1e-8, torch.float32: 2e-5}

Way = Callable[[Pass, Direction], Tensor]

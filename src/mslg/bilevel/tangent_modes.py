"""Ways to compute the directional derivative of a network's logits, from the cheapest exact one to one that always
works."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..data.batch import Inputs
from ..runtime.precision import full_precision, half
from .borrowed_weights import borrowed, called
from .compiled_passes import CompiledPasses, moves_of
from .graph_walk import graph_tangent
from .recomputable_activations import RecomputableActivations

Direction = Sequence[Tensor | None]


class RandomState:
    """The state of the random generators before a pass, so that a later pass can draw the same dropout masks."""

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
class ForwardPass:
    """A forward pass of the noisy batch, with everything needed to differentiate or repeat it. `buffers` are those
    before the pass: some modules, such as spectral norm, change them first and then compute with them. `compiled` is
    what the pass was made by, in mode "compiled", or why it could not be."""

    network: nn.Module
    names: list[str]
    parameters: list[Tensor]
    inputs: Inputs
    random: RandomState
    buffers: dict[str, Tensor]
    logits: Tensor
    activations: RecomputableActivations
    compiled: CompiledPasses | Exception | None = None

    @contextmanager
    def with_weights(self, parameters: Sequence[Tensor]) -> Iterator[None]:
        """Inside, the network has other parameters, and buffers that it may change."""
        buffers = {name: buffer.clone() for name, buffer in self.buffers.items()}
        with borrowed(self.network, {**dict(zip(self.names, parameters, strict=True)), **buffers}):
            yield

    def restore_buffers(self) -> None:
        """Give the network's buffers the values they had before the pass."""
        with torch.no_grad():
            for name, buffer in self.network.named_buffers():
                buffer.copy_(self.buffers[name])

    def again(self) -> Tensor:
        """The logits of another pass, with the same dropout masks."""
        with self.random.replayed():
            return called(self.network, self.inputs)

    def record_again(self) -> None:
        """Repeat the pass, whose graph is gone."""
        self.restore_buffers()
        if isinstance(self.compiled, CompiledPasses):
            tensors = {**dict(self.network.named_parameters()), **dict(self.network.named_buffers())}
            with self.random.replayed():
                self.logits = self.compiled.logits(tensors, self.inputs)
            return
        self.activations = RecomputableActivations()
        with self.activations.watching():
            self.logits = self.again()


TangentFunction = Callable[[ForwardPass, Direction], Tensor]


def by_compiled_passes(forward: ForwardPass, direction: Direction) -> Tensor:
    """Exact, by forward-mode differentiation of a second pass, compiled: the cost of three forward passes."""
    if not isinstance(forward.compiled, CompiledPasses):
        raise RuntimeError(str(forward.compiled))
    weights, moves = dict(forward.network.named_parameters()), moves_of(forward.names, direction)
    with forward.random.replayed():
        return forward.compiled.tangent(weights, moves, forward.buffers, forward.inputs)


def from_graph(forward: ForwardPass, direction: Direction) -> Tensor:
    """Exact, from the recorded graph: the arithmetic of two forward passes and no second pass."""
    return graph_tangent(forward.logits, forward.parameters, direction)


def dual_numbers(forward: ForwardPass, direction: Direction) -> Tensor:
    """Exact, by forward-mode differentiation of a second pass: the cost of three forward passes."""
    with torch.no_grad(), forward_ad.dual_level():
        duals = [
            parameter.detach() if move is None else forward_ad.make_dual(parameter.detach(), move)
            for parameter, move in zip(forward.parameters, direction, strict=True)
        ]
        with forward.with_weights(duals):
            tangent: Tensor | None = forward_ad.unpack_dual(forward.again()).tangent
    return torch.zeros_like(forward.logits) if tangent is None else tangent


def dual_numbers_with_math_attention(forward: ForwardPass, direction: Direction) -> Tensor:
    """The same with attention in basic operations, because the fused kernels have no forward mode."""
    with sdpa_kernel(SDPBackend.MATH):
        return dual_numbers(forward, direction)


def double_backward(forward: ForwardPass, direction: Direction) -> Tensor:
    """Exact, by reverse mode twice: Jᵀc is linear in c, and its derivative with respect to c is J."""
    pairs = [(p, d) for p, d in zip(forward.parameters, direction, strict=True) if d is not None]
    parameters, moves = [p for p, _ in pairs], [d for _, d in pairs]
    fresh = [p.detach().requires_grad_() for p in parameters]
    stand_in = iter(fresh)
    every = [
        next(stand_in) if d is not None else p.detach() for p, d in zip(forward.parameters, direction, strict=True)
    ]
    with torch.enable_grad(), forward.with_weights(every):
        logits = forward.again()
        cotangent = torch.zeros_like(logits, requires_grad=True)
        pulled = torch.autograd.grad(logits, fresh, cotangent, create_graph=True, allow_unused=True)
        used = [(pull, move) for pull, move in zip(pulled, moves, strict=True) if pull is not None]
        if not all(pull.requires_grad for pull, _ in used):
            # A custom function detaches in its backward pass: the tangent would miss everything before it.
            raise RuntimeError("the gradient of some parameter cannot be differentiated again")
        (tangent,) = torch.autograd.grad(
            [pull for pull, _ in used], cotangent, [move for _, move in used], allow_unused=True
        )
    return torch.zeros_like(logits) if tangent is None else tangent.detach()


def double_backward_with_math_attention(forward: ForwardPass, direction: Direction) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return double_backward(forward, direction)


def one_sided_difference(forward: ForwardPass, direction: Direction) -> Tensor:
    """Approximate, by one more forward pass a small step along the direction. Works with any operator."""
    if half(forward.logits.device) is not None:  # the logits of the pass are then too coarse for a difference
        return central_difference(forward, direction)
    step = _step(forward, direction)
    return (_moved(forward, direction, step) - forward.logits.detach()) / step


def central_difference(forward: ForwardPass, direction: Direction) -> Tensor:
    """Approximate to second order, by two more forward passes."""
    step = _step(forward, direction)
    return (_moved(forward, direction, step) - _moved(forward, direction, -step)) / (2 * step)


def _moved(forward: ForwardPass, direction: Direction, step: Tensor) -> Tensor:
    # In half precision, a step this small would be rounded away.
    with torch.no_grad(), full_precision(forward.logits.device):
        moved = [
            p.detach() if d is None else p.detach() + step * d
            for p, d in zip(forward.parameters, direction, strict=True)
        ]
        with forward.with_weights(moved):
            return forward.again()


def _step(forward: ForwardPass, direction: Direction) -> Tensor:
    """A fixed fraction of the norm of the weights, whatever the length of the direction. As a tensor, to avoid
    synchronizing with the GPU."""
    moving = [(p.detach(), d) for p, d in zip(forward.parameters, direction, strict=True) if d is not None]
    size = torch.linalg.vector_norm(torch.stack(torch._foreach_norm([p for p, _ in moving])))
    length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm([d for _, d in moving])))
    fraction = _FRACTION.get(forward.logits.dtype, 1e-3)
    step: Tensor = fraction * size.clamp_min(1e-3) / length.clamp_min(torch.finfo(length.dtype).tiny)
    return step


# Measured on ReLU networks, where crossing a kink costs more than rounding: docs/how-it-works.md.
_FRACTION = {torch.float64: 1e-8, torch.float32: 2e-5}

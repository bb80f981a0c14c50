"""The engine's passes through torch's compiler, and the exact tangent along them.

A compiled pass records no operations, so no tangent can be read off its graph. Forward-mode differentiation of the
network is therefore compiled too, as a function of its own: it repeats the forward pass, and is still quicker.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from ..data.batch import Inputs, arguments, logits_of

Function = TypeVar("Function", bound=Callable[..., Any])
# Dropout draws from torch's own generators, so that the tangent has the masks of the pass that it belongs to.
OPTIONS: dict[str, Any] = {"fallback_random": True}


class CompiledPasses:
    """A network as compiled functions of its weights and buffers. They are compiled when they are first called, and
    again for inputs of another shape."""

    def __init__(self, network: nn.Module) -> None:
        # Without weights: whatever tensors the module had, compiled code would take for those to be used.
        empty = {id(tensor): tensor.to("meta") for tensor in network.buffers()}
        empty |= {
            id(p): nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad) for p in network.parameters()
        }
        skeleton = copy.deepcopy(network, empty)

        def logits(tensors: dict[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
            return logits_of(functional_call(skeleton, tensors, args, kwargs))

        def tangent(
            moving: dict[str, Tensor],
            moves: dict[str, Tensor],
            fixed: dict[str, Tensor],
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
        ) -> Tensor:
            def of(weights: dict[str, Tensor]) -> Tensor:
                # Copies, made here: forward mode refuses to change a tensor from outside, such as batch norm's mean.
                return logits({**{name: tensor.clone() for name, tensor in fixed.items()}, **weights}, args, kwargs)

            found: Tensor = jvp(of, (moving,), (moves,))[1]
            return found

        self._pairs = list(zip(network.modules(), skeleton.modules(), strict=True))
        self._logits = torch.compile(_with_own_code(logits), dynamic=False, options=OPTIONS)
        self._tangent = torch.compile(_with_own_code(tangent), dynamic=False, options=OPTIONS)

    def logits(self, tensors: Mapping[str, Tensor], inputs: Inputs) -> Tensor:
        """(batch, classes) logits with these weights and buffers, the latter of which the pass may change. Their graph
        can be differentiated several times."""
        from torch._functorch import config  # not before: it is slow to import

        self._follow()
        # Views: a compiled function distinguishes parameters from other tensors, and would be compiled for each.
        weights = {name: tensor.view_as(tensor) if tensor.requires_grad else tensor for name, tensor in tensors.items()}
        with config.patch(donated_buffer=False):  # or the first gradient frees what the second needs
            found: Tensor = self._logits(weights, *arguments(inputs))
        return found

    def tangent(
        self,
        weights: Mapping[str, Tensor],
        direction: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        inputs: Inputs,
    ) -> Tensor:
        """(batch, classes) derivative of the logits along a direction of some of the weights. Buffers stay as they
        are."""
        self._follow()
        fixed = {name: weight.detach() for name, weight in weights.items() if name not in direction}
        moving = {name: weights[name].detach() for name in direction}
        with torch.no_grad():
            found: Tensor = self._tangent(moving, dict(direction), {**fixed, **buffers}, *arguments(inputs))
        return found

    def _follow(self) -> None:
        """Whether each module is in training mode is the network's to say."""
        for module, twin in self._pairs:
            if twin.training != module.training:
                twin.training = module.training


def moves_of(names: Sequence[str], direction: Sequence[Tensor | None]) -> dict[str, Tensor]:
    """The direction by name, of the weights that move."""
    return {name: move for name, move in zip(names, direction, strict=True) if move is not None}


def _with_own_code(function: Function) -> Function:
    """A copy whose code is an object of its own: torch counts recompilations by it, over all networks of a process, and
    gives up after a few."""
    made: Any = function
    return FunctionType(made.__code__.replace(), made.__globals__, made.__name__, None, made.__closure__)  # type: ignore[return-value]

"""Call a network with other weights, and differentiate while it still has them.

`torch.func.functional_call` gives the network its own weights back before the gradient is taken. Activation checkpoints
run parts of the network again inside the backward pass: they would then run with the wrong weights, without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch.utils.checkpoint
from torch import Tensor, nn

from ..data.batch import Inputs, call


@contextmanager
def borrowed(network: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, the network has these tensors for its parameters and buffers of the same names; tied ones stay tied."""
    own = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    replacement = {id(own[name]): tensor for name, tensor in tensors.items()}
    kept: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for module in network.modules():
            for members in (module._parameters, module._buffers):
                for name, value in members.items():
                    if value is not None and id(value) in replacement:
                        kept.append((members, name, value))
                        members[name] = replacement[id(value)]  # type: ignore[assignment]
        yield
    finally:
        for members, name, value in kept:
            members[name] = value


def buffers_of(network: nn.Module) -> dict[str, Tensor]:
    """Copies of the buffers: a pass that uses these leaves statistics and other state of the network unchanged."""
    return {name: buffer.clone() for name, buffer in network.named_buffers()}


def called(network: nn.Module, inputs: Inputs) -> Tensor:
    """The logits, with activation checkpoints that can be differentiated by `torch.autograd.grad`."""
    with _differentiable_checkpoints():
        return call(network, inputs)


class _NonReentrant:
    """Replaces torch's function for reentrant checkpoints by the other kind, which saves as much memory. The reentrant
    kind hides from the graph every parameter that it runs again, and only `backward` finds them."""

    @staticmethod
    def apply(function: Any, preserve_random_state: bool, *arguments: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(
            function, *arguments, use_reentrant=False, preserve_rng_state=preserve_random_state
        )


@contextmanager
def _differentiable_checkpoints() -> Iterator[None]:
    reentrant = torch.utils.checkpoint.CheckpointFunction
    torch.utils.checkpoint.CheckpointFunction = _NonReentrant  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        torch.utils.checkpoint.CheckpointFunction = reentrant  # type: ignore[misc]

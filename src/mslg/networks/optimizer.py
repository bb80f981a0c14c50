"""Whether an optimizer is one of a network."""

from __future__ import annotations

from typing import Any

from torch import nn


def check_optimizer(optimizer: Any, network: nn.Module) -> None:
    """Raise if something is no optimizer, or one of another network."""
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(
            f"the function that makes the optimizer returned a {type(optimizer).__name__}, not an optimizer"
        )
    own = {id(parameter) for parameter in network.parameters()}
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    foreign = sum(id(parameter) not in own for parameter in held)
    if foreign:
        raise ValueError(
            f"the {type(optimizer).__name__} holds {foreign} of {len(held)} parameters that are not the network's, "
            "so it would train something else; make it from the parameters or the module that the function is given "
            "(in a loop of your own: from the network that the engine was made with)"
        )

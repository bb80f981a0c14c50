"""Optimizers by name, class or function, and a record of what they really use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..networks.optimizer import check_optimizer
from ..registry import unknown

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
SGD_MOMENTUM = 0.9

NewOptimizer = Callable[[Any], Optimizer]  # of the parameters, or of the module if `takes_module`
MODULE_NAMES = ("module", "network", "model", "net")  # a function whose first argument is called so wants the module


def optimizer_factory(
    optimizer: str | type[Optimizer] | NewOptimizer,
    *,
    learning_rate: float,
    weight_decay: float,
    momentum: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> NewOptimizer:
    """What makes an optimizer for parameters.

    Args:
        optimizer: a name, or an optimizer class, which gets the settings below; or a function of the parameters, which
            makes the optimizer all by itself; or a function of the module, if its argument is called module, network or
            model, for settings that differ between layers.
        momentum: 0.9 for "sgd" unless given; an error for optimizers that have none.
        options: further arguments of the class.
    """
    made = OPTIMIZERS.get(optimizer) if isinstance(optimizer, str) else optimizer
    if made is None:
        raise unknown("optimizer", optimizer, OPTIMIZERS)
    if not (isinstance(made, type) and issubclass(made, Optimizer)):
        given = [name for name, value in {"momentum": momentum, "optimizer_options": options or None}.items() if value]
        if given:
            raise ValueError(
                f"{' and '.join(given)} cannot reach an optimizer that a function makes; set it in the function, or "
                "pass the optimizer's class"
            )
        return made  # type: ignore[return-value]  # a function
    allowed = inspect.signature(made).parameters
    arguments = {"lr": learning_rate, "weight_decay": weight_decay, **(options or {})}
    if momentum is None and made is torch.optim.SGD:
        momentum = SGD_MOMENTUM
    if momentum is not None:
        arguments["momentum"] = momentum
    for name in arguments:
        if name not in allowed:
            known = [key for key in allowed if key not in ("self", "params")]
            raise unknown(f"argument of {made.__name__}", name, known)
    return lambda parameters: made(parameters, **arguments)


def takes_module(make: NewOptimizer) -> bool:
    """Whether a function that makes an optimizer wants the module rather than its parameters."""
    try:
        first = next(iter(inspect.signature(make).parameters.values()), None)
    except (TypeError, ValueError):
        return False
    return first is not None and (first.name in MODULE_NAMES or first.annotation in (nn.Module, "nn.Module"))


def optimizer_for(make: NewOptimizer, network: nn.Module) -> Optimizer:
    """An optimizer for a network's trainable parameters."""
    optimizer = make(network if takes_module(make) else [p for p in network.parameters() if p.requires_grad])
    check_optimizer(optimizer, network)
    return optimizer


class RecordedOptimizers:
    """Makes optimizers, and keeps what the first one was made with: a method may change it afterwards."""

    def __init__(self, make: NewOptimizer, rate: float) -> None:
        update_wrapper(self, make)  # it may take parameters or a module
        self.make, self._rate = make, rate
        self.used: dict[str, Any] = {}

    def __call__(self, what: Any) -> Optimizer:
        optimizer = self.make(what)
        if not self.used and hasattr(optimizer, "param_groups"):
            self.used = used_by(optimizer)
        return optimizer

    def rate(self) -> float:
        """The learning rate of the first optimizer's first group."""
        rate = self.used.get("learning_rate", self._rate)
        return float(rate[0] if isinstance(rate, list) else rate)


def used_by(optimizer: Optimizer) -> dict[str, Any]:
    """The learning rate, weight decay and momentum that an optimizer uses, for the record: those of its first group,
    and all of them where the groups differ."""
    keys = {"learning_rate": "lr", "weight_decay": "weight_decay", "momentum": "momentum"}
    used: dict[str, Any] = {}
    for name, key in keys.items():
        values = [float(group[key]) for group in optimizer.param_groups if key in group]
        if values:
            used[name] = values[0] if len(set(values)) == 1 else values
    return used

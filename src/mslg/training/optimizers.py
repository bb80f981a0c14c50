"""Optimizers by name, class or function, and a record of what they really use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..registry import unknown

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
SGD_MOMENTUM = 0.9

NewOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


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
            makes the optimizer all by itself.
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

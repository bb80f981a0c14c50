"""A cell's settings with every default in them, before anything is run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..data.readers import number_of_classes
from ..fitting.fit import fit, method_settings
from ..methods import METHODS
from ..review.next_round import EPOCHS
from ..runs.settings import TRAIN_KEYS, Settings
from ..training.method import Task
from .grid import Cell


def resolved(cell: Cell, places: Mapping[str, str | None]) -> Settings:
    """What the cell would be run with: every argument of the method's constructor and of training."""
    settings = {name: dict(table) for name, table in cell.settings.items()}
    defaults = inspect.signature(fit).parameters
    settings["train"] = {key: settings["train"].get(key, defaults[key].default) for key in TRAIN_KEYS}
    if settings["train"]["epochs"] is None:
        settings["train"]["epochs"] = EPOCHS
    settings["method"] = _method(cell, settings, places)
    return settings


def _method(cell: Cell, settings: Settings, places: Mapping[str, str | None]) -> dict[str, Any]:
    given = dict(settings["method"])
    name, preset = given.pop("name", "mslg"), given.pop("preset", None)
    # Without a preset nobody asks for the number of classes, and a user's own files need not be read.
    classes = 0 if preset is None else number_of_classes(settings["data"]) or _count(cell, places)
    task = Task(torch.empty(0), classes, nn.Identity, settings["train"]["epochs"], settings["train"]["batch_size"])
    known = method_settings(name, task, preset, given)
    parameters = inspect.signature(METHODS.load(name)).parameters
    arguments = {key: known.get(key, each.default) for key, each in parameters.items() if key != "task"}
    return {"name": name, **({} if preset is None else {"preset": preset}), **arguments}


def _count(cell: Cell, places: Mapping[str, str | None]) -> int:
    from ..runs.open_data import open_named

    return len(open_named(str(cell.placed(**places)["data"]["source"])).train.classes)

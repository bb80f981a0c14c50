"""A cell's settings with every default in them, before anything is run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..data.readers import number_of_classes
from ..fitting.prepare import method_arguments, method_name
from ..methods import METHODS
from ..runs.settings import DEFAULT_EPOCHS, Settings, Tables
from ..training.method import Task
from .grid import PLACES, Cell


def resolved(cell: Cell, places: Mapping[str, str | None]) -> Tables:
    """What the cell would be run with: every argument of the method's constructor and of training, and the folders that
    {root} and {output} stand for where they are known."""
    cell = replace(cell, settings=cell.placed(**{name: places.get(name) or f"{{{name}}}" for name in PLACES}))
    settings = Settings.of(cell.settings)
    train = replace(settings.train, epochs=settings.train.epochs or DEFAULT_EPOCHS)
    tables = {name: dict(table) for name, table in cell.settings.items()}
    return {**tables, "train": train.as_dict(), "method": _method(cell, replace(settings, train=train), places)}


def _method(cell: Cell, settings: Settings, places: Mapping[str, str | None]) -> dict[str, Any]:
    method, train = settings.method, settings.train
    # Without a preset nobody asks for the number of classes, and a user's own files need not be read.
    classes = 0 if method.preset is None else number_of_classes(cell.settings["data"]) or _count(cell, places)
    task = Task(torch.empty(0), classes, nn.Identity, train.epochs or DEFAULT_EPOCHS, train.batch_size)
    known = method_arguments(method, task)
    parameters = inspect.signature(METHODS.resolve(method.name).object).parameters
    arguments = {key: known.get(key, each.default) for key, each in parameters.items() if key != "task"}
    return {"name": method_name(method), **({} if method.preset is None else {"preset": method.preset}), **arguments}


def _count(cell: Cell, places: Mapping[str, str | None]) -> int:
    from ..data.open import open_named

    return len(open_named(str(cell.placed(**places)["data"]["source"])).train.classes)

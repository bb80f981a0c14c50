"""The settings of a run as they are used, for config.toml."""

from __future__ import annotations

import inspect
import re
import zlib
from collections.abc import Mapping
from typing import Any

from ..data.source import Source
from ..data.splits import Splits
from ..review.next_round import Round
from ..runs.run_data import RunData
from ..runs.settings import Settings
from ..training.method import Method


def settings_record(
    settings: Settings,
    data: RunData,
    splits: Splits,
    start: Round,
    method: Method,
    used_by_optimizer: Mapping[str, Any],
    epochs: tuple[int, int],
    name: str,
    preset: str | None,
    used: Mapping[str, Any],
) -> dict[str, dict[str, Any]]:
    """The settings as they are used, for config.toml."""
    source, train = data.train, settings.train
    in_use = {
        "epochs": epochs[0],
        "epochs_asked": epochs[1],
        "clean_batch_size": train.clean_batch_size or train.batch_size,
        "optimizer": _plain(train.optimizer),
        "schedule": _plain(train.schedule),
        "noise_rate": method.task.noise_rate,
        "augment": splits.augment.words,
        "optimizer_options": {key: _plain(value) for key, value in train.optimizer_options.items()},
        **used_by_optimizer,
        **start.settings["train"],
    }
    return {
        "data": {
            "samples": len(source),
            "fingerprint": source.fingerprint(),
            "known_labels_fingerprint": source.known_labels_fingerprint(),
            "clean_fingerprint": data.clean.fingerprint() if isinstance(data.clean, Source) else None,
            "test_fingerprint": None if data.test is None else data.test.fingerprint(),
            "weights_fingerprint": None
            if data.weights is None
            else f"{zlib.crc32(data.weights.numpy().tobytes()):08x}",
            **start.settings["data"],
            **data.record.get("data", {}),
        },
        "noise": dict(data.record.get("noise", {})),
        "network": {
            "class": type(method.deployed()).__name__,
            **data.record.get("network", {"made_by": _import_path(data.network)}),
        },
        "method": {"name": name, "preset": preset, **_constructor_record(method, used)},
        "train": {**train.as_dict(), **in_use},
    }


def _constructor_record(method: Method, used: Mapping[str, Any]) -> dict[str, Any]:
    """Every plain argument of the constructor as used."""
    parameters = inspect.signature(type(method)).parameters
    values = {
        key: used.get(key, getattr(method, key, parameter.default))
        for key, parameter in parameters.items()
        if key != "task"
    }
    return {key: value for key, value in values.items() if isinstance(value, str | bool | int | float)}


def _plain(value: Any) -> Any:
    """The value if TOML can hold it; otherwise the name of the class or function."""
    if isinstance(value, str | bool | int | float | list | tuple):
        return value
    return getattr(value, "__qualname__", type(value).__name__)


def _import_path(network: Any) -> str | None:
    """The name of a function or class that was passed in, to ask for it again: it is never imported by this name."""
    found = f"{getattr(network, '__module__', '')}:{getattr(network, '__qualname__', '')}"
    return found if re.fullmatch(r"[\w.]+:[\w.]+", found) else None

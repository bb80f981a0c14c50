"""Nested state on disk in one safetensors file: tensors as tensors, everything else as JSON beside them. No pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from .files import write_atomically

FORMAT = 1
_MARK = "__tensor__"


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state, atomically."""
    tensors: dict[str, Tensor] = {}
    skeleton = _take_out(state, "", tensors)
    write_atomically(path, save(tensors, {"format_version": str(FORMAT), "skeleton": json.dumps(skeleton)}))


def load_state(path: Path) -> dict[str, Any]:
    """Read a state."""
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a checkpoint or is damaged ({error}); delete it to start over") from error
    if metadata.get("format_version") != str(FORMAT):
        found = metadata.get("format_version", "none")
        raise ValueError(f"{path} has format version {found}, this version of mslg reads {FORMAT}")
    state = _put_back(json.loads(metadata["skeleton"]), tensors)
    assert isinstance(state, dict)
    return state


def _take_out(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The same structure with each tensor replaced by its name."""
    if isinstance(value, Tensor):
        # A copy of its own: safetensors refuses tensors that share memory, and views would drag their base along.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {_MARK: name}
    if isinstance(value, dict):
        # JSON knows only text as a key, optimizers number their parameters: keep keys and values as pairs.
        return {"__dict__": [[key, _take_out(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_take_out(item, f"{name}/{position}", tensors) for position, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(
        f"a {type(value).__name__} ('{name}') cannot be part of a checkpoint; keep tensors and plain values"
    )


def _put_back(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if _MARK in value:
            return tensors[value[_MARK]]
        return {key: _put_back(item, tensors) for key, item in value["__dict__"]}
    if isinstance(value, list):
        return [_put_back(item, tensors) for item in value]
    return value


def to_device(value: Any, device: torch.device) -> Any:
    """The state with every tensor on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, list):
        return [to_device(item, device) for item in value]
    return value

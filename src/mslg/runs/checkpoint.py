"""Nested state on disk in one safetensors file: tensors as tensors, everything else as JSON beside them. No pickle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..runtime.files import HINT, replacing

FORMAT = 1
_MARK = "__tensor__"


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state, atomically, and without a second copy of it in memory."""
    tensors: dict[str, Tensor] = {}
    skeleton = take_out(state, "", tensors)
    metadata = {"format_version": str(FORMAT), "skeleton": json.dumps(skeleton)}
    try:
        with replacing(path) as temporary:
            save_file(alone(tensors), temporary, metadata)
    except SafetensorError as error:
        raise OSError(f"could not write {path} ({error}); {HINT}") from error


def load_state(path: Path, *, share: Callable[[str, list[Tensor]], Tensor] | None = None) -> dict[str, Any]:
    """Read a state; with `share`, what a process should have of each tensor by its name."""
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a checkpoint or is damaged ({error}); delete it to start over") from error
    if metadata.get("format_version") != str(FORMAT):
        found = metadata.get("format_version", "none")
        raise ValueError(f"{path} has format version {found}, this version of mslg reads {FORMAT}")
    if share is not None:
        tensors = {name: share(name, [tensor]) for name, tensor in tensors.items()}
    state = put_back(json.loads(metadata["skeleton"]), tensors)
    assert isinstance(state, dict)
    return state


def take_out(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The same structure with each tensor replaced by its name."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().contiguous()
        return {_MARK: name}
    if isinstance(value, dict):
        # JSON knows only text as a key, optimizers number their parameters: keep keys and values as pairs.
        return {"__dict__": [[key, take_out(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [take_out(item, f"{name}/{position}", tensors) for position, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(
        f"a {type(value).__name__} ('{name}') cannot be part of a checkpoint; keep tensors and plain values"
    )


def alone(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, none of which shares memory with another or with a larger one: safetensors refuses the first,
    and a view would drag its base along. Large tables share nothing and are not copied."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        base = tensor.untyped_storage()
        shared = base.data_ptr() in seen or base.nbytes() != tensor.nbytes
        seen.add(base.data_ptr())
        found[name] = tensor.clone() if shared else tensor
    return found


def put_back(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The counterpart of `take_out`."""
    if isinstance(value, dict):
        if _MARK in value:
            return tensors[value[_MARK]]
        return {key: put_back(item, tensors) for key, item in value["__dict__"]}
    if isinstance(value, list):
        return [put_back(item, tensors) for item in value]
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

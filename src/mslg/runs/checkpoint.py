"""Nested state in one safetensors file: tensors as tensors, everything else as JSON in its metadata. No pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..runtime.checksums import DamagedFile
from ..runtime.files import HINT, regular, replacing
from ..runtime.sharding import KINDS, Sharded

FORMAT = 1
_MARK = "__tensor__"


class Flat(NamedTuple):
    """A nested state taken apart."""

    skeleton: Any  # the state with the name of each tensor in its place
    tensors: dict[str, Tensor]  # by name, none sharing memory with another
    kinds: dict[str, str]  # of the tensors that differ between processes (see `mslg.runtime.sharding`)


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state, atomically, and without a second copy of it in memory."""
    flat = flatten(state)
    metadata = {
        "format_version": str(FORMAT),
        "skeleton": json.dumps(flat.skeleton),
        "kinds": json.dumps(flat.kinds),
    }
    metadata["sha256"] = digest_of(flat.tensors, metadata)
    try:
        with replacing(path) as temporary:
            save_file(flat.tensors, temporary, metadata)
    except SafetensorError as error:
        raise OSError(f"could not write {path} ({error}); {HINT}") from error


def load_state(path: Path) -> dict[str, Any]:
    """Read this process's share of a state that a single process has written."""
    try:
        with safe_open(str(regular(path)), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OverflowError, RuntimeError) as error:
        raise DamagedFile(f"{path} is not a checkpoint or is damaged ({error})") from error
    if metadata.get("format_version") != str(FORMAT):
        found = metadata.get("format_version", "none")
        raise ValueError(f"{path} has format version {found}, this version of mslg reads {FORMAT}")
    if metadata.pop("sha256", None) != digest_of(tensors, metadata):
        raise DamagedFile(f"{path} is damaged: its content does not match its checksum")
    for name, kind in json.loads(metadata["kinds"]).items():
        tensors[name] = KINDS[kind].share([tensors[name]])
    state: dict[str, Any] = unflatten(json.loads(metadata["skeleton"]), tensors)
    return state


def digest_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """The SHA-256 of a state: names, types, shapes and values of the tensors, and everything else."""
    digest = hashlib.sha256(json.dumps(dict(sorted(metadata.items()))).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def flatten(state: dict[str, Any]) -> Flat:
    """Take a state apart."""
    tensors: dict[str, Tensor] = {}
    kinds: dict[str, str] = {}
    skeleton = _take_out(state, "", tensors, kinds)
    return Flat(skeleton, own_memory(tensors), kinds)


def _take_out(value: Any, name: str, tensors: dict[str, Tensor], kinds: dict[str, str]) -> Any:
    if isinstance(value, Sharded):
        kinds[name] = value.kind
        value = value.tensor
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().contiguous()
        return {_MARK: name}
    if isinstance(value, dict):
        # JSON keys are strings, optimizers number their parameters: keep keys and values as pairs.
        return {"__dict__": [[key, _take_out(item, f"{name}/{key}", tensors, kinds)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_take_out(item, f"{name}/{position}", tensors, kinds) for position, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(
        f"a {type(value).__name__} ('{name}') cannot be part of a checkpoint; keep tensors and plain values"
    )


def own_memory(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, none sharing memory with another or with a larger one: safetensors refuses the first, and a
    view would save its base too. Large tables share nothing and are not copied."""
    separate: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        base = tensor.untyped_storage()
        shared = base.data_ptr() in seen or base.nbytes() != tensor.nbytes
        seen.add(base.data_ptr())
        separate[name] = tensor.clone() if shared else tensor
    return separate


def unflatten(skeleton: Any, tensors: dict[str, Tensor]) -> Any:
    """Put a state together again; the tensors are all plain."""
    if isinstance(skeleton, dict):
        if _MARK in skeleton:
            return tensors[skeleton[_MARK]]
        return {key: unflatten(item, tensors) for key, item in skeleton["__dict__"]}
    if isinstance(skeleton, list):
        return [unflatten(item, tensors) for item in skeleton]
    return skeleton


def to_device(value: Any, device: torch.device) -> Any:
    """The state with every tensor on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, list):
        return [to_device(item, device) for item in value]
    return value

"""A checkpoint that several processes write together, each its own part, and that any number of them can read.

Of the tensors of a state, those whose name ends in "rows" have a row for each of a process's own samples, those whose
name ends in "rank" are amounts of one process; all others are the same for all, and the first process writes them. The
files are written by torch.distributed.checkpoint, as safetensors.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..runtime import distributed
from ..runtime.files import write_atomically
from .checkpoint import alone, put_back, take_out

FORMAT = 1
NAME = "shards.json"


def save_shards(folder: Path, state: dict[str, Any]) -> None:
    """Write the state: every process must call this. The previous one is there until this one is complete."""
    tensors: dict[str, Tensor] = {}
    skeleton = take_out(state, "", tensors)
    tensors = alone(tensors)
    here, own = distributed.rank(), {name: tensor for name, tensor in tensors.items() if _kind(name)}
    parts = {_part(here, name): tensor for name, tensor in own.items()}
    if here == 0:
        parts |= {name: tensor for name, tensor in tensors.items() if name not in own}
    number = distributed.broadcast_object(
        max((int(path.name.split("-")[1]) for path in folder.glob("shards-*")), default=0) + 1
    )
    where = folder / f"shards-{number}"
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter  # slow to import
    from torch.distributed.checkpoint.state_dict_saver import save

    save(parts, storage_writer=HuggingFaceStorageWriter(str(where), save_distributed=True))
    if here == 0:
        about = {"format_version": FORMAT, "number": number, "ranks": distributed.ranks(), "skeleton": skeleton}
        write_atomically(folder / NAME, json.dumps(about).encode())
        for older in folder.glob("shards-*"):
            if older != where:
                shutil.rmtree(older)
    distributed.barrier()


def are_shards(folder: Path) -> bool:
    """Whether the checkpoint in this folder was written by several processes."""
    return (folder / NAME).exists()


def delete_shards(folder: Path) -> None:
    """Once there is a later checkpoint of a single process."""
    (folder / NAME).unlink(missing_ok=True)
    for older in folder.glob("shards-*"):
        shutil.rmtree(older)


def load_shards(folder: Path) -> dict[str, Any]:
    """What this process should have of the state, whatever the number of processes that wrote it."""
    about = json.loads((folder / NAME).read_text())
    if about.get("format_version") != FORMAT:
        found = about.get("format_version", "none")
        raise ValueError(f"{folder / NAME} has format version {found}, this version of mslg reads {FORMAT}")
    where, ranks = folder / f"shards-{int(about['number'])}", int(about["ranks"])
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    there = HuggingFaceStorageReader(str(where)).read_metadata().state_dict_metadata
    names = {re.sub(r"^rank-\d+", "", name) for name in there}
    tensors: dict[str, Tensor] = {}
    for name in sorted(names):
        if not _kind(name):
            tensors[name] = _read(where, there, name)
        elif ranks == distributed.ranks():
            tensors[name] = _read(where, there, _part(distributed.rank(), name))
        else:  # one at a time: together they may be more than this process has room for
            tensors[name] = own_share(name, [_read(where, there, _part(rank, name)) for rank in range(ranks)])
    state: dict[str, Any] = put_back(about["skeleton"], tensors)
    return state


def own_share(name: str, parts: list[Tensor]) -> Tensor:
    """What this process should have of a tensor that so many others had parts of."""
    kind, ranks = _kind(name), distributed.ranks()
    if kind == "rank":
        return torch.stack(parts).sum(0) / ranks
    if kind is None:
        return parts[0]
    samples = sum(len(part) for part in parts)
    own = torch.arange(distributed.rank(), samples, ranks)
    found = parts[0].new_empty(len(own), *parts[0].shape[1:])
    for rank, part in enumerate(parts):
        here = own % len(parts) == rank
        found[here] = part[own[here] // len(parts)]
    return found


def _kind(name: str) -> str | None:
    last = re.split(r"[./]", name)[-1]
    return last if last in ("rows", "rank") else None


def _part(rank: int, name: str) -> str:
    return f"rank-{rank}{name}"


def _read(where: Path, there: Mapping[str, Any], name: str) -> Tensor:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    about = there[name]
    tensor = torch.empty(about.size, dtype=about.properties.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load({name: tensor}, storage_reader=HuggingFaceStorageReader(str(where)), no_dist=True)
    return tensor

"""A checkpoint that several processes write together and any number of them can read.

Each process writes the tensors that differ between processes (see `mslg.runtime.sharding`); the main process writes
those that are the same for all. The files are written by torch.distributed.checkpoint, as safetensors.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..runtime import distributed
from ..runtime.checksums import DamagedFile, sha256_of
from ..runtime.files import regular, write_atomically
from ..runtime.sharding import KINDS
from .checkpoint import flatten, unflatten

FORMAT = 1
NAME = "shards.json"


def save_shards(folder: Path, state: dict[str, Any]) -> None:
    """Write the state: every process must call this. The previous one stays until this one is complete."""
    flat, here = flatten(state), distributed.rank()
    parts = {
        _of_rank(here, name) if name in flat.kinds else name: tensor
        for name, tensor in flat.tensors.items()
        if name in flat.kinds or here == 0
    }
    number = distributed.broadcast_object(
        max((int(path.name.split("-")[1]) for path in folder.glob("shards-*")), default=0) + 1
    )
    where = folder / f"shards-{number}"
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter  # slow to import
    from torch.distributed.checkpoint.state_dict_saver import save

    save(parts, storage_writer=HuggingFaceStorageWriter(str(where), save_distributed=True))
    if here == 0:
        about = {
            "sha256": {path.name: sha256_of(path) for path in sorted(where.iterdir())},
            "format_version": FORMAT,
            "number": number,
            "ranks": distributed.ranks(),
            "skeleton": flat.skeleton,
            "names": list(flat.tensors),
            "kinds": flat.kinds,
        }
        write_atomically(folder / NAME, json.dumps({**about, "of_this_file": _own(about)}).encode())
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
    """This process's share of the state, whatever the number of processes that wrote it."""
    about = _about(folder)
    where, ranks = folder / f"shards-{int(about['number'])}", int(about["ranks"])
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    there = HuggingFaceStorageReader(str(where)).read_metadata().state_dict_metadata
    tensors: dict[str, Tensor] = {}
    for name in about["names"]:
        if name not in about["kinds"]:
            tensors[name] = _read(where, there, name)
        elif ranks == distributed.ranks():
            tensors[name] = _read(where, there, _of_rank(distributed.rank(), name))
        else:  # one name at a time: all parts of all tensors may not fit into memory
            parts = [_read(where, there, _of_rank(rank, name)) for rank in range(ranks)]
            tensors[name] = KINDS[about["kinds"][name]].share(parts)
    state: dict[str, Any] = unflatten(about["skeleton"], tensors)
    return state


def check_shards(folder: Path) -> None:
    """Raise unless every shard is as it was written."""
    _about(folder)


def _about(folder: Path) -> dict[str, Any]:
    """The description of a checkpoint, whose shards have been compared with their checksums."""
    path, advice = folder / NAME, f"start over with --force, or delete {folder} and resume"
    try:
        about: dict[str, Any] = json.loads(regular(path).read_text(encoding="utf-8"))
        own = about.pop("of_this_file", None)
    except (ValueError, AttributeError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged ({error}); {advice}") from error
    if about.get("format_version") != FORMAT:
        found = about.get("format_version", "none")
        raise ValueError(f"{path} has format version {found}, this version of mslg reads {FORMAT}")
    if own != _own(about):
        raise DamagedFile(f"{path} is damaged: its content does not match its checksum; {advice}")
    where = folder / f"shards-{int(about['number'])}"
    for name, digest in about["sha256"].items():
        if not (where / name).exists() or sha256_of(where / name) != digest:
            raise DamagedFile(f"{where / name} is missing or damaged; {advice}")
    return about


def _own(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _of_rank(rank: int, name: str) -> str:
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

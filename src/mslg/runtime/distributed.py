"""Several processes that train one network: the few collectives, and which process owns which sample.

Every rank holds the whole network and its own part of the samples: sample i belongs to rank i modulo the ranks, for the
whole run, so that what is remembered of it never crosses from one process to another. All ranks take equally many
samples in a step; a mean over the batch is then the mean over the ranks of their means. With one process nothing here
does anything: the same code trains on one and on many.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm

log = logging.getLogger("mslg")

BUCKET = 25 * 2**20  # bytes sent at once: enough to be efficient, small enough to need no second copy of a model
PATIENCE = timedelta(days=7)  # one rank may write results for long while the others wait; torchrun notices the dead

_alone = False


def ranks() -> int:
    """How many processes train together."""
    return dist.get_world_size() if _together() else 1


def rank() -> int:
    """Which of them this one is, from 0."""
    return dist.get_rank() if _together() else 0


def is_main_process() -> bool:
    """Whether this process is the one that writes and speaks. Known before the processes have met, too."""
    return rank() == 0 if dist.is_initialized() else int(os.environ.get("RANK", "0")) == 0


def started() -> int:
    """How many processes a launcher such as torchrun has started."""
    return dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))


def _together() -> bool:
    return not _alone and dist.is_available() and dist.is_initialized()


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Meet the other processes, if a launcher has started any, and part at the end. Where they have met already (as in
    Ray Train), that meeting is used."""
    if started() == 1 or dist.is_initialized():
        with _heard():
            yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    store, place_, count = next(rendezvous("env://", timeout=PATIENCE))
    dist.init_process_group(backend, store=_fresh(store), rank=place_, world_size=count, timeout=PATIENCE)
    try:
        with _heard():
            yield
    finally:
        dist.destroy_process_group()


def _fresh(store: Any) -> Any:
    """torchrun hands the store of dead processes, with their addresses in it, to those it starts in their place. On one
    machine the number of restarts tells them apart; on several every machine counts its own."""
    here_only = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if here_only else "0"
    return dist.PrefixStore(f"attempt-{attempt}", store)  # type: ignore[attr-defined]


@contextmanager
def _heard() -> Iterator[None]:
    """What every process would say, the first says."""
    level = log.level
    if not is_main_process():
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def local_device(device: torch.device) -> torch.device:
    """On a machine with several GPUs each process takes its own."""
    if started() > 1 and str(device) == "cuda":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


@contextmanager
def single_process() -> Iterator[None]:
    """Inside, this process is the only one: what belongs to the whole is finished by one of them."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


# --- ownership


def own_rows(samples: int, of: tuple[int, int] | None = None) -> int:
    """How many of so many samples this rank owns, or another (rank, ranks)."""
    which, count = of or (rank(), ranks())
    return len(range(which, samples, count))


def place(index: Tensor) -> Tensor:
    """The rows of these samples, all of them this rank's own, in its tables."""
    return index if ranks() == 1 else index // ranks()


def stream() -> tuple[int, ...]:
    """What makes this rank's random numbers its own. The first rank draws what a single process would."""
    return (rank(),) if rank() else ()


# --- collectives


def averaged(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The mean over the ranks of each of these tensors, sent together."""
    if ranks() == 1:
        return list(tensors)
    found: list[Tensor] = [tensor.detach() for tensor in tensors]
    under_way = []
    for positions in _buckets(found):
        flat = torch.cat([found[position].reshape(-1) for position in positions])
        under_way.append((positions, flat, dist.all_reduce(flat, async_op=True)))
    for positions, flat, work in under_way:
        work.wait()
        flat.div_(ranks())
        parts = flat.split([found[position].numel() for position in positions])
        for position, part in zip(positions, parts):
            found[position] = part.view_as(found[position])
    return found


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[int]]:
    """Positions of tensors that are sent together: of one type, up to a size."""
    bucket: list[int] = []
    held = 0
    for position, tensor in enumerate(tensors):
        other_kind = bool(bucket) and tensor.dtype != tensors[bucket[0]].dtype
        if bucket and (other_kind or held + tensor.nbytes > BUCKET):
            yield bucket
            bucket, held = [], 0
        bucket.append(position)
        held += tensor.nbytes
    if bucket:
        yield bucket


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Every rank's gradients become their mean."""
    if ranks() == 1:
        return
    found = [p for p in parameters if p.grad is not None]
    for parameter, mean in zip(found, averaged([p.grad for p in found if p.grad is not None])):
        parameter.grad = mean


def average_statistics(module: nn.Module) -> None:
    """Every rank's running statistics of batch norm become their mean: each rank has seen its own part of a batch."""
    if ranks() == 1:
        return
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    kept = [value for m in norms for value in (m.running_mean, m.running_var) if value is not None]
    for value, mean in zip(kept, averaged(kept)):
        value.copy_(mean)


def broadcast_module(module: nn.Module) -> nn.Module:
    """Every rank's weights become those of the first: a network may have been drawn by chance."""
    if ranks() > 1:
        for tensor in module.state_dict().values():
            if isinstance(tensor, Tensor):
                dist.broadcast(tensor.detach(), 0)
    return module


def gathered(tensor: Tensor) -> Tensor:
    """The ranks' tensors one after another, in the order of the ranks. They may differ in length."""
    if ranks() == 1:
        return tensor
    length = torch.tensor(len(tensor), device=tensor.device)
    lengths = [torch.zeros_like(length) for _ in range(ranks())]
    dist.all_gather(lengths, length)
    longest = int(max(lengths))
    padded = tensor.detach().new_zeros(longest, *tensor.shape[1:])
    padded[: len(tensor)] = tensor.detach()
    parts = [torch.empty_like(padded) for _ in range(ranks())]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(count)] for part, count in zip(parts, lengths)])


def own_part(count: int) -> slice:
    """This rank's part of what `gathered` puts together of equally long parts."""
    return slice(rank() * (count // ranks()), (rank() + 1) * (count // ranks()))


def from_first(tensor: Tensor) -> Tensor:
    """The first rank's tensor, on all."""
    if ranks() > 1:
        dist.broadcast(tensor, 0)
    return tensor


def broadcast_object(value: Any) -> Any:
    """What the first rank says, on all: for decisions that rest on the clock or on files."""
    if ranks() == 1:
        return value
    said = [value]
    dist.broadcast_object_list(said, 0)
    return said[0]


def barrier() -> None:
    """Until all ranks are here."""
    if ranks() > 1:
        dist.barrier()


class _Mean(torch.autograd.Function):
    """The mean over ranks, of a value forwards and of its gradient backwards."""

    @staticmethod
    def forward(tensor: Tensor) -> Tensor:
        return averaged([tensor])[0].clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return averaged([gradients[0]])[0]

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return averaged([tangents[0]])[0]


def mean(tensor: Tensor) -> Tensor:
    """The mean over the ranks, through which gradients find their way back to all of them."""
    return tensor if ranks() == 1 else _Mean.apply(tensor)  # type: ignore[no-untyped-call]

"""Data-parallel training: the process group, collectives, and which process owns which sample.

Every rank has the whole network and its own samples: sample i belongs to rank i modulo the number of ranks for the
whole run, so that per-sample state never moves between processes. All ranks take the same number of samples per step,
so the mean over a batch is the mean of the ranks' means. With one process, nothing here does anything: the same code
trains on one and on many.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm

log = logging.getLogger("mslg")

BUCKET = 25 * 2**20  # bytes per all-reduce: large enough to be efficient, small compared to a copy of the model
TIMEOUT = timedelta(days=7)  # one rank may write results for long while others wait; torchrun detects dead ones

PATIENCE = 60  # seconds until a process says that it waits for the others
LOST = ("gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe")  # in errors of lost connections

_single = False


class PeerEnded(ConnectionError):
    """Another process of the run is gone, so that this one cannot go on."""


def ranks() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if _initialized() else 1


def rank() -> int:
    """The rank of this process, from 0."""
    return dist.get_rank() if _initialized() else 0


def is_main_process() -> bool:
    """Whether this process is the one that writes files and logs. Works before the process group exists."""
    return rank() == 0 if dist.is_initialized() else int(os.environ.get("RANK", "0")) == 0


def launched_processes() -> int:
    """The number of processes that a launcher such as torchrun has started."""
    return dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))


def _initialized() -> bool:
    return not _single and dist.is_available() and dist.is_initialized()


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Inside, the processes that a launcher has started form a process group. An existing group (as in Ray Train) is
    used as it is."""
    if launched_processes() == 1 or dist.is_initialized():
        with _main_process_logs():
            yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with _noticing_lost_peers():
        _interruptible(lambda: _connect("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"))
        try:
            with _main_process_logs():
                yield
        finally:
            dist.destroy_process_group()


def _connect(backend: str) -> None:
    store, number, count = next(rendezvous("env://", timeout=TIMEOUT))
    dist.init_process_group(backend, store=_per_attempt(store), rank=number, world_size=count, timeout=TIMEOUT)


def _interruptible(function: Callable[[], None]) -> None:
    """Call a function that may wait for other processes. A signal is handled meanwhile: Python would do so only when
    the function returns, and a process that waits for one that is gone would have to be killed."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    begun, warned = time.monotonic(), False
    while thread.is_alive():
        thread.join(0.05)
        if not warned and time.monotonic() - begun > PATIENCE:
            log.warning("still waiting for the other %d processes of this run", launched_processes() - 1)
            warned = True
    if raised:
        raise raised[0]


@contextmanager
def _noticing_lost_peers() -> Iterator[None]:
    """Inside, an error of the connection to another process becomes a `PeerEnded`."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or any(word in str(error) for word in LOST):
            first = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise PeerEnded(f"another process of this run has ended; its own message says why ({first})") from error
        raise


def _per_attempt(store: Any) -> Any:
    """After a restart, torchrun passes the store of the dead processes, which still contains their addresses, to the
    new ones. On one machine the number of restarts tells them apart; on several, each machine counts its own."""
    one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if one_machine else "0"
    return dist.PrefixStore(f"attempt-{attempt}", store)  # type: ignore[attr-defined]


@contextmanager
def _main_process_logs() -> Iterator[None]:
    """Inside, the other processes log only errors."""
    level = log.level
    if not is_main_process():
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def local_device(device: torch.device) -> torch.device:
    """The GPU of this process on a machine with several."""
    if launched_processes() > 1 and str(device) == "cuda":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


@contextmanager
def single_process() -> Iterator[None]:
    """Inside, this process behaves as if it were the only one, to finish work that belongs to all."""
    global _single
    before, _single = _single, True
    try:
        yield
    finally:
        _single = before


# --- ownership


def local_count(samples: int, of: tuple[int, int] | None = None) -> int:
    """How many of these samples this rank owns, or another (rank, ranks)."""
    number, count = of or (rank(), ranks())
    return len(range(number, samples, count))


def local_rows(index: Tensor) -> Tensor:
    """The rows of these samples, all owned by this rank, in its per-sample tables."""
    return index if ranks() == 1 else index // ranks()


def rank_key() -> tuple[int, ...]:
    """What to add to the position of a seed to get different random numbers per rank. Rank 0 draws those of a single
    process."""
    return (rank(),) if rank() else ()


# --- collectives


def averaged(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The mean over the ranks of each of these tensors, by all-reduce in buckets."""
    if ranks() == 1:
        return list(tensors)
    means: list[Tensor] = [tensor.detach() for tensor in tensors]
    pending = []
    for positions in _buckets(means):
        flat = torch.cat([means[position].reshape(-1) for position in positions])
        pending.append((positions, flat, dist.all_reduce(flat, async_op=True)))
    for positions, flat, work in pending:
        work.wait()
        flat.div_(ranks())
        parts = flat.split([means[position].numel() for position in positions])
        for position, part in zip(positions, parts, strict=True):
            means[position] = part.view_as(means[position])
    return means


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[int]]:
    """Positions of tensors that are sent together: of one dtype, up to a size."""
    bucket: list[int] = []
    size = 0
    for position, tensor in enumerate(tensors):
        if bucket and (tensor.dtype != tensors[bucket[0]].dtype or size + tensor.nbytes > BUCKET):
            yield bucket
            bucket, size = [], 0
        bucket.append(position)
        size += tensor.nbytes
    if bucket:
        yield bucket


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace the gradients by their mean over the ranks."""
    if ranks() == 1:
        return
    used = [p for p in parameters if p.grad is not None]
    for parameter, mean in zip(used, averaged([p.grad for p in used if p.grad is not None]), strict=True):
        parameter.grad = mean


def average_statistics(module: nn.Module) -> None:
    """Replace the running statistics of batch norm by their mean over the ranks: each has seen its part of a batch."""
    if ranks() == 1:
        return
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    statistics = [value for m in norms for value in (m.running_mean, m.running_var) if value is not None]
    for value, mean in zip(statistics, averaged(statistics), strict=True):
        value.copy_(mean)


def broadcast_module(module: nn.Module) -> nn.Module:
    """Replace the weights by those of rank 0: initial weights may be random."""
    if ranks() > 1:
        for tensor in module.state_dict().values():
            if isinstance(tensor, Tensor):
                dist.broadcast(tensor.detach(), 0)
    return module


def gathered(tensor: Tensor) -> Tensor:
    """The tensors of all ranks, concatenated in order of rank. They may differ in length."""
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
    return torch.cat([part[: int(count)] for part, count in zip(parts, lengths, strict=True)])


def local_slice(count: int) -> slice:
    """This rank's part of what `gathered` returns, for parts of equal length."""
    return slice(rank() * (count // ranks()), (rank() + 1) * (count // ranks()))


def broadcast_tensor(tensor: Tensor) -> Tensor:
    """The tensor of rank 0, on all ranks."""
    if ranks() > 1:
        dist.broadcast(tensor, 0)
    return tensor


def broadcast_object(value: Any) -> Any:
    """The object of rank 0, on all ranks: for decisions that depend on the clock or on files."""
    if ranks() == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, 0)
    return values[0]


def barrier() -> None:
    """Wait for all ranks."""
    if ranks() > 1:
        dist.barrier()


class _Mean(torch.autograd.Function):
    """The mean over ranks, of a value in the forward pass and of its gradient in the backward pass."""

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
    """The differentiable mean over the ranks: gradients flow back to all of them."""
    return tensor if ranks() == 1 else _Mean.apply(tensor)  # type: ignore[no-untyped-call]

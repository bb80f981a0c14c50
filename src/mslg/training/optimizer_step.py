"""How an optimizer steps: on the mean over the ranks, over the parts of a batch, and with the loss scaled for fp16.

A method calls `descend` once a step for each of its optimizers, and need not know any of that: the loop says which part
of a batch it is at, and the method's own scaler is in force while it steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from ..runtime.distributed import average_gradients


@dataclass
class _Now:
    scaler: GradScaler | None = None
    share: float = 1.0  # of the batch that the present part is
    first: bool = True
    last: bool = True
    stepped: bool = False


_now = _Now()


@contextmanager
def _being(now: _Now) -> Iterator[_Now]:
    global _now
    before, _now = _now, now
    try:
        yield now
    finally:
        _now = before


@contextmanager
def scaled_by(scaler: GradScaler | None) -> Iterator[None]:
    """Inside, losses are scaled by this."""
    with _being(replace(_now, scaler=scaler)):
        yield


@contextmanager
def part(share: float, *, first: bool, last: bool) -> Iterator[None]:
    """Inside, a step is on a part of a batch: gradients add up over the parts, the optimizers step at the last one."""
    with _being(replace(_now, share=share, first=first, last=last, stepped=False)) as now:
        yield
        if now.stepped and now.scaler is not None:
            now.scaler.update()  # not before: all parts of all optimizers need the same scale


def descend(
    optimizer: Optimizer, loss: Tensor, *, plus: Iterable[tuple[Tensor, Tensor]] = (), weight: float = 1.0
) -> None:
    """One step on the mean of the ranks' losses. `plus` are parameters with further gradients, which are the same on
    all ranks and count with this weight."""
    now = _now
    if now.first:
        optimizer.zero_grad(set_to_none=True)
    if now.share != 1:
        loss = loss * now.share
    (loss if now.scaler is None else now.scaler.scale(loss)).backward()
    factor = weight * now.share * (1.0 if now.scaler is None else now.scaler.get_scale())
    for parameter, gradient in plus:
        so_far = parameter.grad
        parameter.grad = factor * gradient if so_far is None else so_far.add_(gradient, alpha=factor)
    if not now.last:
        return
    # Averaged while still scaled: an overflow on one rank is then one on all, and all leave this step out.
    average_gradients(parameter for group in optimizer.param_groups for parameter in group["params"])
    if now.scaler is None:
        optimizer.step()
        return
    now.scaler.step(optimizer)
    if now.share == 1:
        now.scaler.update()
    else:
        now.stepped = True

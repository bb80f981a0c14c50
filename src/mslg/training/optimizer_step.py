"""One optimizer step: over the mean of the ranks, over the micro-batches of a batch, with the loss scaled for fp16."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim import optimizer as of_torch

from ..runtime.distributed import average_gradients


class OptimizerStep:
    """Backward pass and optimizer step. A method owns one and calls it through `Method.descend`.

    Args:
        scaler: scales losses, for training in fp16.
        clip: largest norm of an optimizer's gradient; a longer one is scaled down to it.
    """

    def __init__(self, scaler: GradScaler | None = None, clip: float | None = None) -> None:
        self.scaler, self.clip = scaler, clip
        self._share, self._first, self._last = 1.0, True, True  # of the present micro-batch
        self._stepped = False

    @contextmanager
    def microbatch(self, share: float, *, first: bool, last: bool) -> Iterator[None]:
        """Inside, steps are on this share of a batch: gradients add up, and optimizers step on the last one."""
        self._share, self._first, self._last, self._stepped = share, first, last, False
        try:
            yield
            if self.scaler is not None and self._stepped:
                self.scaler.update()  # not earlier: all micro-batches of all optimizers need the same scale
        finally:
            self._share, self._first, self._last = 1.0, True, True

    def __call__(
        self,
        optimizer: Optimizer | Sequence[Optimizer],
        loss: Tensor,
        *,
        plus: Iterable[tuple[Tensor, Tensor]] = (),
        weight: float = 1.0,
    ) -> None:
        """Step on the mean of the ranks' losses, and free the gradients.

        Args:
            optimizer: of the parameters to train; several of them share one backward pass.
            loss: 0-d tensor with a graph.
            plus: parameters with additional gradients, which are the same on all ranks.
            weight: factor on these.
        """
        optimizers = [optimizer] if isinstance(optimizer, Optimizer) else optimizer
        if self._first:
            for each in optimizers:
                _free_gradients(each)
        if self._share != 1:
            loss = loss * self._share
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        factor = weight * self._share * (1.0 if self.scaler is None else self.scaler.get_scale())
        for parameter, gradient in plus:
            so_far = parameter.grad
            parameter.grad = factor * gradient if so_far is None else so_far.add_(gradient, alpha=factor)
        if self._last:
            # Averaged while still scaled: an overflow on one rank is then one on all, and all skip this step.
            average_gradients([trained for each in optimizers for trained in _trained_by(each)])
            for each in optimizers:
                self._step(each)
                _free_gradients(each)  # now: the next step's passes need the memory
            if self.scaler is not None and self._share == 1:
                self.scaler.update()
            else:
                self._stepped = True

    def _step(self, optimizer: Optimizer) -> None:
        if self.clip is not None:
            if self.scaler is not None:
                self.scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(_trained_by(optimizer), self.clip)
        if self.scaler is None:
            take_step(optimizer)
            return
        self.scaler.step(optimizer)


def take_step(optimizer: Optimizer) -> None:
    """`optimizer.step()`. Where nothing is hooked into torch's SGD or Adam, without its wrappers: they take a third of
    the step of a small network, and import torch's compiler."""
    if type(optimizer) not in UNWRAPPED or _hooked(optimizer) or optimizer.defaults["differentiable"]:
        optimizer.step()
        return
    with torch.no_grad():
        if not _step_at_once(optimizer):
            UNWRAPPED[type(optimizer)](optimizer)


UNWRAPPED: dict[type[Optimizer], Any] = {kind: inspect.unwrap(kind.step) for kind in (SGD, Adam, AdamW)}


def _step_at_once(optimizer: Optimizer) -> bool:
    """Step all parameters of SGD on a CPU in one call, if that is possible: a third of the time on an MLP, equal to
    rounding."""
    if type(optimizer) is not SGD or not all(_is_flat(group, optimizer.state) for group in optimizer.param_groups):
        return False
    for group in optimizer.param_groups:
        trained = [parameter for parameter in group["params"] if parameter.grad is not None]
        gradients = [parameter.grad for parameter in trained]
        states = [optimizer.state[parameter] for parameter in trained] if group["momentum"] else []
        first = bool(states) and states[0].get("momentum_buffer") is None
        if first:
            for state, gradient in zip(states, gradients, strict=True):
                state["momentum_buffer"] = torch.empty_like(gradient)
        if trained:
            momenta = [state["momentum_buffer"] for state in states]
            settings = {name: group[name] for name in FUSED}
            torch._fused_sgd_(trained, gradients, momenta, **settings, is_first_step=first)
    return True


FUSED = ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")


def _is_flat(group: dict[str, Any], states: Mapping[Tensor, Any]) -> bool:
    """Whether weights, gradients and momenta are flat arrays of one type, as the call takes them for, and the user has
    not chosen how to step."""
    if group["fused"] is not None or group["foreach"] is not None or not isinstance(group["lr"], float):
        return False
    kinds, begun = set(), set()
    for parameter in group["params"]:
        if (gradient := parameter.grad) is not None:
            if not parameter.is_cpu or not parameter.is_contiguous() or gradient.layout is not torch.strided:
                return False
            if not gradient.is_contiguous():
                return False
            kinds |= {parameter.dtype, gradient.dtype}
            begun.add(states[parameter].get("momentum_buffer") is not None)
    return len(kinds) <= 1 and len(begun) <= 1 and all(kind.is_floating_point for kind in kinds)


def _hooked(optimizer: Optimizer) -> bool:
    hooks = (
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
        of_torch._global_optimizer_pre_hooks,
        of_torch._global_optimizer_post_hooks,
    )
    return any(hooks) or "step" in vars(optimizer)  # replaced in the object: by a scheduler of torch


def _free_gradients(optimizer: Optimizer) -> None:
    for trained in _trained_by(optimizer):
        trained.grad = None


def _trained_by(optimizer: Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]

"""One optimizer step: over the mean of the ranks, over the micro-batches of a batch, with the loss scaled for fp16."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
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
        """Step on the mean of the ranks' losses.

        Args:
            optimizer: of the parameters to train; several of them share one backward pass.
            loss: 0-d tensor with a graph.
            plus: parameters with additional gradients, which are the same on all ranks.
            weight: factor on these.
        """
        optimizers = [optimizer] if isinstance(optimizer, Optimizer) else optimizer
        if self._first:
            for each in optimizers:
                for trained in _trained_by(each):
                    trained.grad = None
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
    with torch.no_grad(), _fused(optimizer):
        UNWRAPPED[type(optimizer)](optimizer)


UNWRAPPED: dict[type[Optimizer], Any] = {kind: inspect.unwrap(kind.step) for kind in (SGD, Adam, AdamW)}


@contextmanager
def _fused(optimizer: Optimizer) -> Iterator[None]:
    """Inside, SGD on a CPU steps all parameters in one call: a third of the time on an MLP, equal to rounding. It takes
    weights and gradients for flat arrays, so both must be."""
    groups = optimizer.param_groups if type(optimizer) is SGD else []
    chosen = any(group["fused"] is not None or group["foreach"] is not None for group in groups)
    if chosen or not all(_is_flat(trained) for group in groups for trained in group["params"]):
        groups = []
    try:
        for group in groups:
            group["fused"] = True
        yield
    finally:
        for group in groups:  # it is no setting of the user's
            group["fused"] = None


def _is_flat(trained: Tensor) -> bool:
    if trained.device.type != "cpu" or not trained.is_floating_point() or not trained.is_contiguous():
        return False
    gradient = trained.grad
    return gradient is None or (gradient.layout is torch.strided and gradient.is_contiguous())


def _hooked(optimizer: Optimizer) -> bool:
    hooks = (
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
        of_torch._global_optimizer_pre_hooks,
        of_torch._global_optimizer_post_hooks,
    )
    return any(hooks) or "step" in vars(optimizer)  # replaced in the object: by a scheduler of torch


def _trained_by(optimizer: Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]

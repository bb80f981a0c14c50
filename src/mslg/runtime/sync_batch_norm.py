"""Batch norm whose statistics are those of the whole batch, when several processes have a part of it each."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from . import distributed


class Synchronised(_BatchNorm):
    """Batch norm over the parts of all ranks. Made of ordinary operations and one mean over the ranks, so that it can
    be differentiated in every way the engine knows; torch's own runs on GPUs alone and has no tangent."""

    def forward(self, input: Tensor) -> Tensor:
        if distributed.ranks() == 1 or not self.training:
            return super().forward(input)
        dims = [dim for dim in range(input.dim()) if dim != 1]
        shape = [1, -1] + [1] * (input.dim() - 2)
        own = input.mean(dims)
        spread = (input - own.view(shape)).pow(2).mean(dims)
        mean, within, square = distributed.mean(torch.cat([own, spread, own * own])).chunk(3)
        variance = within + square - mean * mean  # that of the parts, and that between them
        self._remember(mean.detach(), variance.detach(), distributed.ranks() * input.numel() // input.shape[1])
        normal = (input - mean.view(shape)) * (variance + self.eps).rsqrt().view(shape)
        return normal * self.weight.view(shape) + self.bias.view(shape) if self.affine else normal

    def _remember(self, mean: Tensor, variance: Tensor, count: int) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        # None is a plain mean over all batches. Always a tensor, so that a GPU need not be waited for.
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        share = torch.as_tensor(share, dtype=mean.dtype, device=mean.device)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_((variance * (count / max(count - 1, 1))).to(self.running_var.dtype), share)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"batch norm got an input of {input.dim()} dimension; it needs (batch, channels, …)")


def synchronise(network: nn.Module) -> nn.Module:
    """Every batch norm of the network becomes one over all ranks: same parameters, same buffers, same names."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            module.__class__ = Synchronised  # type: ignore[assignment]
    return network

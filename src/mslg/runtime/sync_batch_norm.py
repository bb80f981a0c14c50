"""Batch norm over the whole batch when each of several processes holds a part of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from . import distributed


class SyncBatchNorm(_BatchNorm):
    """Batch norm with statistics over all ranks. Built from ordinary operations and one mean over the ranks, so that it
    supports every mode of differentiation the bilevel engine uses; torch's own runs on GPUs only and has no tangent."""

    def forward(self, input: Tensor) -> Tensor:
        if distributed.ranks() == 1 or not self.training:
            return super().forward(input)
        dims = [dim for dim in range(input.dim()) if dim != 1]
        shape = [1, -1] + [1] * (input.dim() - 2)
        own = input.mean(dims)
        spread = (input - own.view(shape)).pow(2).mean(dims)
        # Weighted by their number: ranks may have unequal parts.
        size = len(input) * torch.ones_like(own[:1])
        *totals, sizes = distributed.mean(torch.cat([size * torch.cat([own, spread, own * own]), size])).split(len(own))
        mean, within, square = (total / sizes for total in totals)
        variance = within + square - mean * mean  # within the ranks' parts, plus between them
        count = sizes.detach() * distributed.ranks() * (input.numel() // (len(input) * input.shape[1]))
        self._update_statistics(mean.detach(), variance.detach(), count)
        normal: Tensor = (input - mean.view(shape)) * (variance + self.eps).rsqrt().view(shape)
        return normal * self.weight.view(shape) + self.bias.view(shape) if self.affine else normal

    def _update_statistics(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        # momentum=None is a plain mean over all batches. Always a tensor, so as not to wait for a GPU.
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        share = torch.as_tensor(share, dtype=mean.dtype, device=mean.device)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_((variance * (count / (count - 1).clamp_min(1))).to(self.running_var.dtype), share)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"batch norm got an input of {input.dim()} dimension; it needs (batch, channels, …)")


def synchronize(network: nn.Module) -> nn.Module:
    """Replace every batch norm of the network by one over all ranks, with the same parameters, buffers and names."""
    replaced: dict[nn.Module, nn.Module] = {}  # a layer used in two places stays one layer
    for parent in list(network.modules()):
        for name, child in list(parent._modules.items()):
            if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
                setattr(parent, name, replaced.setdefault(child, _over_all_ranks(child)))
    return network


def _over_all_ranks(layer: _BatchNorm) -> SyncBatchNorm:
    if type(layer).forward is not _BatchNorm.forward:
        raise ValueError(
            f"{type(layer).__name__} is a batch norm with a forward of its own and cannot be synchronized over "
            "processes; pass sync_batch_norm=False, or use torch's batch norm"
        )
    made = SyncBatchNorm(layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
    made.weight, made.bias = layer.weight, layer.bias
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        setattr(made, name, getattr(layer, name))
    return made.train(layer.training)

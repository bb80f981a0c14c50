"""Batch norm over all ranks takes the place of torch's, with the same parameters and names."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mslg.runtime.sync_batch_norm import SyncBatchNorm, synchronize


class Twice(nn.Module):
    """Uses one layer in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm1d(3, eps=1e-3, momentum=0.2)
        self.body = nn.Sequential(nn.Linear(3, 3), self.first, nn.BatchNorm1d(3, affine=False))
        self.again = self.first

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.body(self.again(inputs))
        return output


def test_parameters_buffers_names_and_results_stay() -> None:
    network, expected = Twice(), Twice()
    expected.load_state_dict(network.state_dict())
    parameters = list(network.parameters())
    assert synchronize(network) is network
    assert isinstance(network.first, SyncBatchNorm)
    assert network.first is network.again is network.body[1]
    assert all(new is old for new, old in zip(network.parameters(), parameters, strict=True))
    assert list(network.state_dict()) == list(expected.state_dict())
    inputs = torch.randn(5, 3)
    assert torch.equal(network(inputs), expected(inputs))
    for name, value in network.state_dict().items():
        assert torch.equal(value, expected.state_dict()[name]), name


class WithActivation(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).relu()


def test_a_batch_norm_with_a_forward_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match=r"WithActivation is a batch norm with .* pass sync_batch_norm=False"):
        synchronize(nn.Sequential(WithActivation(3)))

"""Evaluation mode, and back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mslg.networks.evaluating import evaluating


def test_every_module_gets_its_own_mode_back_whatever_happens() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    network[1].eval()  # frozen by its user
    modes = [module.training for module in network.modules()]
    with evaluating(network):
        assert not any(module.training for module in network.modules())
        assert not network(torch.ones(3, 2)).requires_grad
    assert [module.training for module in network.modules()] == modes
    with pytest.raises(KeyError), evaluating(network):
        raise KeyError
    assert [module.training for module in network.modules()] == [True, True, False, True]

"""ResNet-18: its shape, its size, and that the engine knows every operation in it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mslg.bilevel import Bilevel
from mslg.networks.resnet import ResNet18


def test_it_is_as_large_as_the_original_for_small_images() -> None:
    network = ResNet18()
    assert sum(p.numel() for p in network.parameters()) == 11_173_962
    assert sum(isinstance(module, torch.nn.Conv2d) for module in network.modules()) == 17 + 3  # and 3 shortcuts


@pytest.mark.parametrize(("size", "channels"), [(32, 3), (8, 1)])
def test_it_takes_images_of_any_size(size: int, channels: int) -> None:
    network = ResNet18(5, width=2, channels=channels)
    assert network(torch.randn(3, channels, size, size)).shape == (3, 5)


def test_its_tangent_is_read_off_the_graph() -> None:
    torch.manual_seed(0)
    network = ResNet18(3, width=2).double().train()
    images, label = torch.randn(2, 4, 3, 16, 16, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    tangents = []
    for mode in ("exact", "double-backward"):
        engine = Bilevel(network, mode=mode)  # type: ignore[arg-type]
        loss = lambda logits: F.cross_entropy(logits, label)  # noqa: E731
        tangents.append(engine(images[0], loss, images[1], loss, look_ahead=0.1).tangent)
        if mode == "exact":
            assert engine.way == "the recorded graph"
    torch.testing.assert_close(*tangents, rtol=1e-9, atol=1e-11)

"""Mode "compiled": the numbers of the exact mode, in passes that torch's compiler takes; and what happens where it
does not. Most tests leave the compiler out, and with it half a minute; those that use it are slow."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mslg.bilevel import Bilevel, BilevelOutput, MicroBatch
from mslg.networks.cnn import CNN8

CLASSES = 3
COMPILED = "compiled forward-mode differentiation"


class Sums(nn.Module):
    """Several inputs, tied weights, a frozen layer, a buffer that is counted up, and an output with logits in it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, CLASSES)
        self.other.weight = self.one.weight
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.register_buffer("seen", torch.zeros(()))

    seen: Tensor

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        self.seen += 1
        logits: Tensor = self.head(torch.tanh(self.one(left) + self.other(right)) + self.frozen(right))
        return logits


def convolutions() -> nn.Module:
    body = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.3))
    return nn.Sequential(body, nn.Flatten(), nn.Linear(6 * 9, CLASSES))


def pictures(count: int = 6) -> Tensor:
    return torch.randn(count, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def two_inputs(count: int = 6) -> dict[str, Tensor]:
    left, right = torch.randn(2, count, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return {"left": left, "right": right}


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "convolutions": (convolutions, pictures),
    "two inputs": (Sums, two_inputs),
}


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same functions, as they are."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def made(name: str) -> tuple[nn.Module, Any]:
    build, inputs = CASES[name]
    torch.manual_seed(0)
    return build().double().train(), inputs()


def stepped(
    network: nn.Module, inputs: Any, *, look_ahead: float = 0.3, **options: Any
) -> tuple[BilevelOutput, list[Tensor | None], Bilevel]:
    """What the engine says of a batch, and the gradients of a loss of its logits."""
    engine = Bilevel(network, **options)
    label = torch.arange(6) % CLASSES
    network.zero_grad()
    torch.manual_seed(3)
    found = engine(
        inputs,
        lambda logits: F.cross_entropy(logits, label),
        inputs,
        lambda logits: F.cross_entropy(logits, 2 - label),
        look_ahead=look_ahead,
    )
    F.cross_entropy(found.logits, label).backward()
    return found, [p.grad for p in network.parameters()], engine


def loss_on(label: Tensor, logits: Tensor) -> Tensor:
    return F.cross_entropy(logits, label)


def compare(name: str) -> None:
    """Tangent, loss, gradients and buffers are those of the exact mode, in training mode and after `eval()`."""
    network, inputs = made(name)
    twin = copy.deepcopy(network)
    for _ in range(2):
        exact, gradients, _ = stepped(network, inputs)
        found, compiled_gradients, engine = stepped(twin, inputs, mode="compiled")
        assert engine.way == COMPILED
        assert exact.tangent.abs().max() > 1e-3
        assert torch.allclose(found.tangent, exact.tangent, rtol=1e-9, atol=1e-12)
        assert torch.allclose(found.logits, exact.logits, rtol=1e-9)
        assert torch.allclose(found.clean_loss, exact.clean_loss, rtol=1e-9)
        for one, other in zip(gradients, compiled_gradients, strict=True):
            assert (one is None) == (other is None)
            assert one is None or (other is not None and torch.allclose(one, other, rtol=1e-9, atol=1e-12))
        for one, other in zip(network.buffers(), twin.buffers(), strict=True):
            assert torch.allclose(one, other)
        network.eval()
        twin.eval()


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_exact_mode(name: str) -> None:
    compare(name)


@pytest.mark.usefixtures("uncompiled")
def test_with_micro_batches_too() -> None:
    directions = []
    label = torch.arange(6) % CLASSES
    for engine in (Bilevel(made("two inputs")[0], mode=mode) for mode in ("exact", "compiled")):
        halves = [(slice(0, 3), label[:3]), (slice(3, 6), label[3:])]
        parts = [
            MicroBatch({key: value[rows] for key, value in two_inputs().items()}, partial(loss_on, own), 0.5)
            for rows, own in halves
        ]
        engine.shared_clean_gradient(parts, parts, look_ahead=0.3)
        assert engine.kept is not None
        directions.append([each for each in engine.kept.direction if each is not None])
        assert float(dict(engine.network.named_buffers())["seen"]) == 0
    for one, other in zip(*directions, strict=True):
        assert torch.allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("look_ahead", [0.3, 0.0], ids=["noisy pass first", "clean pass first"])
def test_a_network_that_cannot_be_compiled_has_the_exact_mode(
    look_ahead: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no C++ compiler was found")

    monkeypatch.setattr(torch, "compile", lambda function, **_: fails)
    network, inputs = made("convolutions")
    twin = copy.deepcopy(network)
    with caplog.at_level(logging.INFO, "mslg"):
        found, _, engine = stepped(network, inputs, look_ahead=look_ahead, mode="compiled")
    assert torch.equal(found.tangent, stepped(twin, inputs, look_ahead=look_ahead)[0].tangent)
    assert engine.way == "the recorded graph"
    assert [record.message for record in caplog.records] == [
        f"Sequential: exact tangent by the recorded graph, because {COMPILED} fails (no C++ compiler was found)"
    ]


def test_an_error_of_the_network_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    network, _ = made("two inputs")
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        stepped(network, {key: value[:, :4] for key, value in two_inputs().items()}, mode="compiled")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_compiled_passes_are_exact(name: str) -> None:
    compare(name)


@pytest.mark.slow
def test_many_networks_are_compiled_in_one_process(caplog: pytest.LogCaptureFixture) -> None:
    """And the same one for several sizes of batches."""
    for number in range(10):  # torch gives up after eight of one function
        torch.manual_seed(number)
        network = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, CLASSES)).double()
        inputs = torch.randn(6, 5, dtype=torch.float64)
        found, _, engine = stepped(network, inputs, mode="compiled")
        assert engine.way == COMPILED
        assert torch.allclose(found.tangent, stepped(network, inputs)[0].tangent)
    assert not [record for record in caplog.records if "recompile" in record.message.lower()]


@pytest.mark.slow
def test_the_paper_s_network_in_single_precision() -> None:
    torch.manual_seed(0)
    network, inputs = CNN8(CLASSES, width=4), torch.randn(6, 3, 16, 16)
    twin = copy.deepcopy(network)
    exact, found = stepped(network, inputs)[0].tangent, stepped(twin, inputs, mode="compiled")[0].tangent
    assert float((found - exact).norm() / exact.norm()) < 1e-3

"""What a look at the clean batch must leave alone, and what the user's network may be."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from mslg.bilevel import MODES, Bilevel, BilevelOutput, recomputable_activations, spendable_weights
from mslg.bilevel import (
    tangent_modes as tangents,
)
from mslg.bilevel.recomputable_activations import RecomputableActivations
from mslg.bilevel.spendable_weights import Spendable
from mslg.bilevel.tangent_modes import ForwardPass
from mslg.networks.head import find_head

WAYS = [
    tangents.from_graph,
    tangents.dual_numbers,
    tangents.double_backward,
    tangents.central_difference,
    tangents.one_sided_difference,
]
NOT_COMPILED = [mode for mode in MODES if mode != "compiled"]
OPTIONS: list[dict[str, Any]] = [{"mode": mode} for mode in NOT_COMPILED] + [
    {"recompute": True},
    {"mode": "difference", "central": True},
    {"mode": "head", "recompute": True},
]
EVERY = [*OPTIONS, pytest.param({"mode": "compiled"}, marks=pytest.mark.slow)]


def network(dropout: float = 0.3) -> nn.Module:
    """Batch norm, dropout, an in-place ReLU and max-pooling, and images as input."""
    torch.manual_seed(0)
    return (
        nn.Sequential(
            nn.Conv2d(2, 6, 3),
            nn.BatchNorm2d(6),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            nn.Flatten(),
            nn.Linear(6 * 9, 10),
            nn.BatchNorm1d(10, momentum=None),
            nn.ReLU(),
            nn.Linear(10, 3),
        )
        .double()
        .train()
    )


def images(seed: int, count: int = 6) -> Tensor:
    return torch.randn(count, 2, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


LABEL = torch.tensor([0, 1, 2, 0, 1, 2])


def loss(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits, LABEL)


def look(
    net: nn.Module, inputs: Any = None, clean: Any = None, *, look_ahead: float = 0.1, **options: Any
) -> BilevelOutput:
    """One call of the engine, always from the same random state."""
    torch.manual_seed(7)
    inputs = images(1) if inputs is None else inputs
    return Bilevel(net, **options)(inputs, loss, images(2) if clean is None else clean, loss, look_ahead=look_ahead)


def plain(net: nn.Module, inputs: Tensor | None = None) -> Tensor:
    torch.manual_seed(7)
    logits: Tensor = net(images(1) if inputs is None else inputs)
    return logits


def gradients(net: nn.Module, logits: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss(logits), list(net.parameters())))


@pytest.mark.parametrize("look_ahead", [0.0, 0.1])
@pytest.mark.parametrize("options", EVERY, ids=str)
def test_statistics_see_the_noisy_batch_once_and_weights_and_gradients_nothing(
    options: dict[str, Any], look_ahead: float
) -> None:
    net, twin = network(dropout=0.0), network(dropout=0.0)
    plain(twin)
    weights = [p.detach().clone() for p in net.parameters()]
    for number, p in enumerate(net.parameters()):
        p.grad = torch.full_like(p, number)
    look(net, look_ahead=look_ahead, **options)
    for name, buffer in net.named_buffers():
        assert torch.equal(buffer, twin.get_buffer(name)), name
    for number, (p, before) in enumerate(zip(net.parameters(), weights, strict=True)):
        assert torch.equal(p, before)
        assert p.grad is not None
        assert (p.grad == number).all()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_second_pass_draws_the_dropout_masks_of_the_first(way: Callable[[ForwardPass, Any], Tensor]) -> None:
    net = network(dropout=0.5)
    torch.manual_seed(7)
    engine = Bilevel(net)
    done = engine.forward(images(1))
    direction = [torch.ones_like(p) for p in engine.parameters]
    expected = tangents.from_graph(done, direction)
    state = torch.get_rng_state()
    tangent = way(done, direction)
    exact = way not in (tangents.central_difference, tangents.one_sided_difference)
    tolerance = 1e-11 if exact else 1e-5
    torch.testing.assert_close(tangent.detach(), expected, rtol=tolerance, atol=tolerance)
    assert torch.equal(torch.get_rng_state(), state)  # whatever is drawn next does not depend on the mode


def test_other_masks_would_have_been_noticed() -> None:
    engine = Bilevel(network(dropout=0.5))
    one, other = engine.forward(images(1)), engine.forward(images(1))
    direction = [torch.ones_like(p) for p in engine.parameters]
    assert not torch.allclose(tangents.from_graph(one, direction), tangents.from_graph(other, direction), rtol=0.1)


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_the_modes_leave_the_random_state_alike(options: dict[str, Any]) -> None:
    look(network())
    state = torch.get_rng_state()
    look(network(), **options)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("mode", [*NOT_COMPILED, pytest.param("compiled", marks=pytest.mark.slow)])
def test_recomputing_gives_the_same_numbers(mode: Any) -> None:
    kept_net, again_net = network(), network()
    kept, again = look(kept_net, mode=mode), look(again_net, mode=mode, recompute=True)
    assert torch.equal(kept.logits, again.logits)
    assert torch.equal(kept.clean_loss, again.clean_loss)
    torch.testing.assert_close(kept.tangent, again.tangent, rtol=1e-12, atol=1e-12)
    for one, other in zip(gradients(kept_net, kept.logits), gradients(again_net, again.logits), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("look_ahead", [0.0, 0.1])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_training_goes_on_from_the_logits_as_from_a_plain_pass(options: dict[str, Any], look_ahead: float) -> None:
    net, twin = network(dropout=0.0), network(dropout=0.0)
    logits = look(net, look_ahead=look_ahead, **options).logits
    expected = plain(twin)
    assert torch.equal(logits, expected)
    for one, other in zip(gradients(net, logits), gradients(twin, expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


class Residual(nn.Module):
    """A block that ends in ReLU(batch norm + input)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.last = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        out = self.last(self.second(torch.relu(self.norm(self.first(x)))))
        out += x
        return F.relu(out)


def wide_network() -> nn.Module:
    """Activations large enough not to be kept."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16, affine=False),
        nn.ReLU(),
        *(Residual(16) for _ in range(4)),  # the last one is too deep to be recomputed from the first
        nn.Conv2d(16, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12 * 16 * 16, 3),
    ).train()


@pytest.mark.parametrize("deepest", [0, 2])
@pytest.mark.parametrize("recompute", [False, True])
def test_activations_that_are_not_kept_are_recomputed_bit_by_bit(
    recompute: bool, deepest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recomputable_activations, "DEEPEST", deepest)
    inputs, clean = (torch.randn(6, 2, 32, 32, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))

    def run() -> tuple[BilevelOutput, list[Tensor], list[bool]]:
        net = wide_network()
        rectified: list[StorageWeakRef] = []
        for module in net:
            if isinstance(module, nn.ReLU | Residual):
                module.register_forward_hook(lambda _, __, out: rectified.append(StorageWeakRef(out.untyped_storage())))
        gone: list[bool] = []

        def clean_loss(logits: Tensor) -> Tensor:
            gone.extend(reference.expired() for reference in rectified[:7])
            return loss(logits)

        meta = Bilevel(net, recompute=recompute)(inputs, loss, clean, clean_loss, look_ahead=0.1)
        return meta, gradients(net, meta.logits), gone

    meta, gradient, gone = run()
    blocks = [False] * 4 if deepest == 0 else [True, True, False, True]
    assert gone == ([True] * 7 if recompute else [True, True, *blocks, True])
    monkeypatch.setattr(RecomputableActivations, "watching", lambda self: nullcontext())
    kept_meta, kept_gradient, kept = run()
    assert kept == [recompute] * 7
    assert torch.equal(meta.tangent, kept_meta.tangent)
    for one, other in zip(gradient, kept_gradient, strict=True):
        assert torch.equal(one, other)


def test_a_graph_that_is_used_up_leaves_nothing_behind() -> None:
    """Not even until the next garbage collection: nothing in it refers to itself in a circle."""
    net, gone = wide_network(), []
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _, __, out: gone.append(StorageWeakRef(out.untyped_storage())))
    gc.disable()
    try:
        inputs = torch.randn(6, 2, 32, 32)
        meta = Bilevel(net)(inputs, loss, inputs, loss, look_ahead=0.1)
        loss(meta.logits).backward()
        del meta
        assert all(reference.expired() for reference in gone)
    finally:
        gc.enable()


def test_look_ahead_weights_are_freed_while_the_gradient_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spendable_weights, "WORTH_IT", 1)
    net, inputs = wide_network(), torch.randn(6, 2, 32, 32)
    engine, spent = Bilevel(net), []
    original = Spendable._spend

    def spend(self: Any, weight: Any, gradient: Tensor) -> None:
        memory = StorageWeakRef(weight().untyped_storage())
        original(self, weight, gradient)
        spent.append(memory.expired())

    monkeypatch.setattr(Spendable, "_spend", spend)
    found = engine(inputs, loss, inputs, loss, look_ahead=0.1)
    assert len(spent) == len(list(net.parameters()))
    assert all(spent)
    other = Bilevel(net)
    other.spends = False
    assert torch.equal(found.tangent, other(inputs, loss, inputs, loss, look_ahead=0.1).tangent)


class ReadsWeightsLate(nn.Module):
    """The last layer's weight is also read in a checkpoint of the first layers, without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def start(self, x: Tensor) -> Tensor:
        return torch.tanh(self.first(x)) * (1 + self.head.weight.detach().sum(0))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.utils.checkpoint.checkpoint(self.start, x, use_reentrant=False)
        logits: Tensor = self.head(hidden)
        return logits


@pytest.mark.parametrize("recompute", [False, True])
def test_a_weight_that_is_read_after_its_gradient_is_not_freed(
    recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spendable_weights, "WORTH_IT", 1)
    torch.manual_seed(0)
    net, inputs, clean = ReadsWeightsLate(), torch.randn(6, 4), torch.randn(6, 4)
    engine, other = Bilevel(net, recompute=recompute), Bilevel(net, recompute=recompute)
    other.spends = False
    expected = other(inputs, loss, clean, loss, look_ahead=0.1)
    found = engine(inputs, loss, clean, loss, look_ahead=0.1)
    assert not engine.spends
    assert torch.equal(found.tangent, expected.tangent)
    assert torch.equal(found.clean_loss, expected.clean_loss)
    for one, two in zip(gradients(net, found.logits), gradients(net, expected.logits), strict=True):
        assert torch.equal(one, two)


class TiedWeights(nn.Module):
    """A square weight used as it is and transposed: two tensors of one shape on the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(256, 256, dtype=torch.float64) / 16)
        self.first, self.head = nn.Linear(4, 256).double(), nn.Linear(256, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.first(x) @ self.weight) @ self.weight.t())
        return logits


def test_a_weight_and_its_transpose_are_not_taken_for_one_another() -> None:
    torch.manual_seed(0)
    net = TiedWeights()
    x, clean = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    meta = look(net, x, clean)
    for one, other in zip(gradients(net, meta.logits), gradients(net, plain(net, x)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(meta.tangent, look(net, x, clean, mode="double-backward").tangent, rtol=1e-9, atol=1e-11)


class ChangesInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).sigmoid()
        hidden.add_(1)
        logits: Tensor = self.head(hidden)
        return logits


def test_an_activation_changed_in_place_is_reported() -> None:
    with pytest.raises(RuntimeError, match=r"activation of shape \(6, 5\).*changed in place; remove"):
        look(ChangesInPlace(), torch.randn(6, 4), torch.randn(6, 4))


@pytest.mark.parametrize("mode", ["exact", "difference", "double-backward"])
def test_a_frozen_backbone_works(mode: Any) -> None:
    net = network()
    net[:6].requires_grad_(False)
    meta = look(net, mode=mode)
    assert meta.tangent.abs().max() > 0
    by_dual_numbers = tangent_of(net, tangents.dual_numbers)
    torch.testing.assert_close(meta.tangent, by_dual_numbers, rtol=1e-5, atol=1e-7)
    loss(meta.logits).backward()
    assert [p.grad is not None for p in net.parameters()] == [p.requires_grad for p in net.parameters()]


def tangent_of(net: nn.Module, way: Callable[[ForwardPass, Any], Tensor]) -> Tensor:
    """What `look` computes, step by step, with a way of one's own choice."""
    torch.manual_seed(7)
    engine = Bilevel(net)
    done = engine.forward(images(1))
    direction, _ = engine.clean_gradient(engine.look_ahead(done, loss, 0.1), images(2), loss)
    return way(done, direction)


def test_head_mode_moves_the_last_layer_only() -> None:
    net = network()
    engine = Bilevel(net, mode="head")
    assert engine.names == ["9.weight", "9.bias"]
    head_only = look(net, mode="head")
    net[:9].requires_grad_(False)
    exact = look(net)
    torch.testing.assert_close(head_only.tangent, exact.tangent, rtol=1e-12, atol=1e-14)
    assert torch.equal(head_only.clean_loss, exact.clean_loss)


def test_the_head_can_be_named() -> None:
    net = network()
    assert Bilevel(net, mode="head", head=net[6]).names == ["6.weight", "6.bias"]
    assert find_head(net)[1] is net[9]


def test_a_network_without_a_linear_layer_has_no_head_of_its_own() -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 8), nn.Flatten())
    with pytest.raises(ValueError, match=r"Sequential has no Linear layer.*; name the layer with head="):
        Bilevel(net, mode="head")
    assert Bilevel(net, mode="head", head=net[0]).names == ["0.weight", "0.bias"]


def test_a_frozen_head_is_reported() -> None:
    net = network()
    net[9].requires_grad_(False)
    with pytest.raises(ValueError, match="the head has no trainable parameter; unfreeze it, or name another layer"):
        Bilevel(net, mode="head")


def test_a_network_with_nothing_to_train_is_reported() -> None:
    with pytest.raises(ValueError, match="no trainable parameter; unfreeze at least its last layer"):
        Bilevel(network().requires_grad_(False))


def test_an_unknown_mode_gets_the_one_probably_meant() -> None:
    with pytest.raises(
        ValueError, match=r"unknown mode 'exactt'\. Did you mean 'exact'\? Allowed: exact, compiled, diff"
    ):
        Bilevel(network(), mode="exactt")  # type: ignore[arg-type]


class TwoInputs(nn.Module):
    """Takes two tensors, by position or by name, and wraps its answer as some libraries do."""

    def __init__(self, wrap: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows, self.words, self.head = nn.Linear(4, 5), nn.Embedding(7, 5), nn.Linear(10, 3)
        self.wrap = wrap

    def forward(self, rows: Tensor, words: Tensor) -> Any:
        logits = self.head(torch.cat([self.rows(rows).tanh(), self.words(words).mean(1)], 1))
        return SimpleNamespace(logits=logits, hidden=None) if self.wrap else logits


@pytest.mark.parametrize("wrap", [False, True], ids=["bare", "wrapped"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_inputs_may_be_tuples_or_dicts_and_outputs_wrapped(options: dict[str, Any], wrap: bool) -> None:
    net = TwoInputs(wrap).double()
    draw = torch.Generator().manual_seed(3)
    rows, clean_rows = (torch.randn(6, 4, dtype=torch.float64, generator=draw) for _ in range(2))
    words, clean_words = (torch.randint(0, 7, (6, 3), generator=draw) for _ in range(2))
    by_position = look(net, (rows, words), (clean_rows, clean_words), **options)
    by_name = look(net, {"words": words, "rows": rows}, {"rows": clean_rows, "words": clean_words}, **options)
    assert by_position.logits.shape == by_position.tangent.shape == (6, 3)
    assert torch.equal(by_position.tangent, by_name.tangent)
    assert by_position.tangent.abs().max() > 0


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (lambda logits: logits.unsqueeze(1), r"returned \(6, 1, 3\)"),
        (lambda logits: logits[:, 0], r"returned \(6,\)"),
        (lambda logits: {"logits": logits}, "returned dict"),
    ],
    ids=["three dimensions", "one dimension", "a dict"],
)
def test_an_output_that_is_not_logits_is_reported(output: Callable[[Tensor], Any], told: str) -> None:
    class Wrong(nn.Linear):
        def forward(self, x: Tensor) -> Any:  # type: ignore[override]
            return output(super().forward(x))

    with pytest.raises(ValueError, match=told + r"; it must return logits of shape \(batch, classes\)"):
        look(Wrong(4, 3), torch.randn(6, 4), torch.randn(6, 4))


def kept_steps(count: int, **options: Any) -> list[BilevelOutput]:
    """Steps of one engine, each on its own noisy batch; those that find a clean gradient kept get no clean batch."""
    net = network(dropout=0.0)
    engine = Bilevel(net, clean_every=3, **options)
    found = []
    for number in range(count):
        clean = images(100 + number) if engine.kept is None else None
        found.append(engine(images(number), loss, clean, loss, look_ahead=0.1))
    return found


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_a_kept_clean_gradient_serves_the_next_steps(options: dict[str, Any]) -> None:
    steps = kept_steps(4, **options)
    losses = [float(step.clean_loss) for step in steps]
    assert losses[0] == losses[1] == losses[2] != losses[3]
    engine = Bilevel(network(dropout=0.0), **options)
    direction = engine._look(images(0), loss, images(100), loss, 0.1)[1]
    for number, step in enumerate(steps[:3]):
        expected = engine.tangent(engine.forward(images(number)), direction)
        torch.testing.assert_close(step.tangent, expected, rtol=1e-9, atol=1e-11)
        assert step.logits.requires_grad


def test_a_kept_clean_gradient_goes_on_in_another_engine() -> None:
    net = network(dropout=0.0)
    engine, other = Bilevel(net, clean_every=3), Bilevel(net, clean_every=3)
    engine(images(0), loss, images(100), loss, look_ahead=0.1)
    assert engine.kept is not None
    other.keep(*engine.kept)
    tangent = [each(images(1), loss, None, loss, look_ahead=0.1).tangent for each in (engine, other)]
    assert torch.equal(*tangent)
    assert other.kept is not None
    assert other.kept.steps == 1


@pytest.mark.parametrize("value", [0, -2, 1.5])
def test_an_impossible_clean_every_is_reported(value: Any) -> None:
    with pytest.raises(ValueError, match=f"clean_every is {value}; it must be a whole number of steps, 1 or more"):
        Bilevel(network(), clean_every=value)


def test_the_cost_of_a_cycle_is_the_mean_of_its_steps() -> None:
    costs = [Bilevel(network(), clean_every=every).relative_cost(0.1) for every in (1, 2, 4, 1000)]
    assert costs == sorted(costs, reverse=True)
    assert costs[1] == pytest.approx((costs[0] + costs[3]) / 2, abs=0.01)


@pytest.mark.parametrize("options", [{}, {"recompute": True}, {"mode": "head"}, {"mode": "double-backward"}], ids=str)
def test_channels_may_come_last(options: dict[str, Any]) -> None:
    expected = look(network(dropout=0.0), **options)  # a mask is drawn in the order of the memory
    laid_out = look(network(dropout=0.0).to(memory_format=torch.channels_last), **options)
    torch.testing.assert_close(laid_out.tangent, expected.tangent, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(laid_out.logits, expected.logits, rtol=1e-9, atol=1e-11)

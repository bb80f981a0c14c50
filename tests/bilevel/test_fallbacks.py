"""Networks with operators that the recorded graph has no rule for: another way is found, told once and remembered."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mslg.bilevel import Bilevel, BilevelOutput
from mslg.bilevel.fallbacks import TangentMode
from mslg.training import losses

CLASSES = 3
GRAPH = "the recorded graph"
DIFFERENCE = "a central finite difference (approximate)"


class TransformerClassifier(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.rows, self.encoder, self.head = nn.Linear(6, 8), nn.TransformerEncoder(layer, 2), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(self.rows(x)).mean(1))
        return logits


class RecurrentClassifier(nn.Module):
    def __init__(self, cell: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.body, self.head = cell(6, 8, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x)[0][:, -1])
        return logits


class BagClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(20, 8), nn.Linear(8, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        logits: Tensor = self.head(self.bag(words).tanh())
        return logits


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1), nn.Hardsigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


def mobile_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, bias=False),
        nn.BatchNorm2d(8),
        nn.Hardswish(inplace=True),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
        nn.BatchNorm2d(8),
        nn.Hardswish(),
        SqueezeExcite(8),
        nn.Conv2d(8, 6, 1, bias=False),
        nn.BatchNorm2d(6),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, CLASSES),
    )


def sequences(draw: torch.Generator) -> Tensor:
    return torch.randn(8, 5, 6, generator=draw, dtype=torch.float64)


def words(draw: torch.Generator) -> Tensor:
    return torch.randint(0, 20, (8, 5), generator=draw)


def images(draw: torch.Generator) -> Tensor:
    return torch.randn(8, 3, 12, 12, generator=draw, dtype=torch.float64)


class Kind(NamedTuple):
    build: Callable[[], nn.Module]
    inputs: Callable[[torch.Generator], Tensor]
    way: str
    told: str | None  # why the way that was asked for cannot be had; None where it can
    dtype: torch.dtype = torch.float64


EXACT: dict[str, Kind] = {
    "transformer": Kind(TransformerClassifier, sequences, GRAPH, None),
    "transformer, single precision": Kind(TransformerClassifier, sequences, GRAPH, None, torch.float32),
    # Dropout inside attention has no fused kernel on a CPU, and what is written out has rules.
    "transformer with dropout": Kind(lambda: TransformerClassifier(0.2), sequences, GRAPH, None),
    "lstm": Kind(lambda: RecurrentClassifier(nn.LSTM), sequences, GRAPH, None),
    "lstm, single precision": Kind(lambda: RecurrentClassifier(nn.LSTM), sequences, GRAPH, None, torch.float32),
    "gru": Kind(lambda: RecurrentClassifier(nn.GRU), sequences, GRAPH, None),
    "gru, single precision": Kind(lambda: RecurrentClassifier(nn.GRU), sequences, GRAPH, None, torch.float32),
    "embedding bag": Kind(
        BagClassifier,
        words,
        DIFFERENCE,
        "the recorded graph has no rule for EmbeddingBagBackward0 and no other exact way works either",
    ),
    "mobile net": Kind(mobile_net, images, GRAPH, None),
}
TWICE: dict[str, Kind] = {
    "transformer": Kind(
        TransformerClassifier,
        sequences,
        "double backward with math attention",
        r"double backward fails \(derivative for aten::_scaled_dot_product\w+ is not implemented\)",
    ),
    "embedding bag": Kind(
        BagClassifier,
        words,
        DIFFERENCE,
        r"double backward fails \(.*embedding_bag.* not implemented.*\) and no other exact way works either",
    ),
    "mobile net": Kind(
        mobile_net,
        images,
        DIFFERENCE,
        r"double backward fails \(.*hardsigmoid.* not implemented.*\) and no other exact way works either",
    ),
    "lstm": Kind(lambda: RecurrentClassifier(nn.LSTM), sequences, "double backward", None),
}


class Task:
    """A network, two batches, a soft label for each noisy sample, and the step of MSLG on them."""

    def __init__(self, kind: Kind) -> None:
        torch.manual_seed(0)
        self.network = kind.build().to(kind.dtype).train()
        draw = torch.Generator().manual_seed(1)
        self.inputs, self.clean_inputs = kind.inputs(draw), kind.inputs(draw)
        if self.inputs.is_floating_point():
            self.inputs, self.clean_inputs = self.inputs.to(kind.dtype), self.clean_inputs.to(kind.dtype)
        given, self.clean_label = (torch.randint(0, CLASSES, (8,), generator=draw) for _ in range(2))
        self.label_logits = 4 * F.one_hot(given, CLASSES).to(kind.dtype)

    def look(self, engine: Bilevel) -> BilevelOutput:
        torch.manual_seed(2)
        log_soft = self.label_logits.log_softmax(1)
        return engine(
            self.inputs,
            lambda logits: losses.reverse_kl(logits.log_softmax(1), log_soft).mean(),
            self.clean_inputs,
            lambda logits: F.cross_entropy(logits, self.clean_label),
            look_ahead=0.1,
        )

    def step(self, engine: Bilevel, optimizer: torch.optim.Optimizer) -> BilevelOutput:
        meta = self.look(engine)
        log_probs = meta.logits.log_softmax(1)
        self.label_logits = self.label_logits - losses.probability_tangent(log_probs.detach(), meta.tangent)
        soft = self.label_logits.softmax(1)
        optimizer.zero_grad()
        losses.soft_cross_entropy(log_probs, soft).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return meta

    def in_double_precision(self) -> Task:
        twin = copy.deepcopy(self)
        twin.network = twin.network.double()
        if twin.inputs.is_floating_point():
            twin.inputs, twin.clean_inputs = twin.inputs.double(), twin.clean_inputs.double()
        twin.label_logits = twin.label_logits.double()
        return twin


def expect_three_steps(kind: Kind, mode: Any, caplog: pytest.LogCaptureFixture) -> None:
    task = Task(kind)
    twin = task.in_double_precision()
    reference = twin.look(Bilevel(twin.network, mode="difference", central=True)).tangent
    before = copy.deepcopy(task.network.state_dict())
    engine = Bilevel(task.network, mode=mode)
    optimizer = torch.optim.SGD(task.network.parameters(), lr=0.1)
    with caplog.at_level(logging.DEBUG, logger="mslg"):
        first = task.step(engine, optimizer)
        told = [record for record in caplog.records if record.levelno >= logging.INFO]
        caplog.clear()
        metas = [first] + [task.step(engine, optimizer) for _ in range(2)]
        assert not caplog.records  # the way found is remembered: nothing is tried again

    assert engine.way == kind.way
    if kind.told is None:
        assert not told
    else:
        (line,) = told
        exact = kind.way != DIFFERENCE
        assert line.levelno == (logging.INFO if exact else logging.WARNING)
        expected = f"{type(task.network).__name__}: {'exact' if exact else 'approximate'} tangent by "
        assert line.getMessage().startswith(expected + kind.way.removesuffix(" (approximate)") + ", because ")
        assert re.search(f"because {kind.told}$", line.getMessage()), line.getMessage()
    for meta in metas:
        assert meta.tangent.isfinite().all()
        assert meta.tangent.abs().max() > 0
    assert F.cosine_similarity(first.tangent.double().flatten(), reference.flatten(), 0) >= 0.999
    assert any(not torch.equal(value, before[name]) for name, value in task.network.state_dict().items())


@pytest.mark.parametrize("name", EXACT)
def test_exact_mode_trains_any_network(name: str, caplog: pytest.LogCaptureFixture) -> None:
    kind = EXACT[name]
    if name == "lstm, single precision" and not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no fused LSTM on the CPU")
    expect_three_steps(kind, "exact", caplog)


@pytest.mark.parametrize("name", TWICE)
def test_double_backward_mode_trains_any_network(name: str, caplog: pytest.LogCaptureFixture) -> None:
    expect_three_steps(TWICE[name], "double-backward", caplog)


@pytest.mark.parametrize("central", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_the_difference_needs_no_fallback(name: str, central: bool, caplog: pytest.LogCaptureFixture) -> None:
    task = Task(EXACT[name])
    with caplog.at_level(logging.DEBUG, logger="mslg"):
        assert task.look(Bilevel(task.network, mode="difference", central=central)).tangent.isfinite().all()
    assert not caplog.records


@pytest.mark.parametrize("name", ["transformer", "embedding bag"])
def test_a_fallback_leaves_recomputed_graphs_usable(name: str) -> None:
    kept, again = Task(EXACT[name]), Task(EXACT[name])
    one = kept.look(Bilevel(kept.network))
    other = again.look(Bilevel(again.network, recompute=True))
    torch.testing.assert_close(one.tangent, other.tangent, rtol=1e-6, atol=1e-8)
    assert torch.equal(one.logits, other.logits)


class DetachedSine(torch.autograd.Function):
    """As fused kernels often are: right in its first derivative, and silent about having no second one."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return (gradient * x.cos()).detach()


class CustomFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(6, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(DetachedSine.apply(self.first(x.mean(1))))
        return logits


def test_a_custom_function_without_second_derivative_is_not_differentiated_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = "double backward fails (the gradient of some parameter cannot be differentiated again)"
    suffix = " and no other exact way works either"
    expect_three_steps(Kind(CustomFunction, sequences, DIFFERENCE, re.escape(told) + suffix), "double-backward", caplog)
    caplog.clear()
    told = "the recorded graph has no rule for DetachedSineBackward"
    expect_three_steps(Kind(CustomFunction, sequences, DIFFERENCE, told + suffix), "exact", caplog)


def test_running_out_of_memory_is_no_reason_to_change_the_way() -> None:
    task = Task(EXACT["gru"])
    engine = Bilevel(task.network)

    def out_of_memory(*_: Any) -> Tensor:
        raise torch.OutOfMemoryError("no room")

    engine.fallbacks.modes[0] = TangentMode(out_of_memory, "a way that needs much room")
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        task.look(engine)
    assert engine.way == "a way that needs much room"


def test_where_no_way_works_the_last_error_is_raised() -> None:
    task = Task(EXACT["gru"])
    engine = Bilevel(task.network)

    def broken(*_: Any) -> Tensor:
        raise RuntimeError("not on this device")

    engine.fallbacks.modes[:] = [TangentMode(broken, "one way"), TangentMode(broken, "another way")]
    with pytest.raises(RuntimeError, match="not on this device"):
        task.look(engine)

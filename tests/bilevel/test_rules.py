"""Every rule by which a recorded operation carries a tangent, against forward-mode differentiation in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from mslg.bilevel.graph_walk import graph_tangent
from mslg.bilevel.rules import RULES, Unsupported
from mslg.bilevel.rules.elementwise import SYMMETRIC

aten = torch.ops.aten


class Case:
    """A function of some tensors, and the shapes of those tensors. All of them may move."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...], positive: bool = False) -> None:
        self.function, self.shapes, self.positive = function, shapes, positive

    def operands(self) -> list[Tensor]:
        torch.manual_seed(1)
        drawn = [torch.randn(shape, dtype=torch.float64) for shape in self.shapes]
        return [(tensor.abs() + 0.5 if self.positive else tensor).requires_grad_() for tensor in drawn]

    def __call__(self, *operands: Tensor) -> Tensor:
        torch.manual_seed(2)  # dropout draws from it
        return self.function(*operands)


class Net(Case):
    """A module as a function of its parameters and its input."""

    def __init__(self, build: Callable[[], nn.Module], shape: tuple[int, ...], *, training: bool = True) -> None:
        torch.manual_seed(0)
        self.module = build().double().train(training)
        self.names = [name for name, _ in self.module.named_parameters()]
        for buffer in self.module.buffers():  # running statistics other than 0 and 1
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 1.5)
        super().__init__(self._call, *[tuple(p.shape) for p in self.module.parameters()], shape)

    def _call(self, *operands: Tensor) -> Tensor:
        buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        parameters = dict(zip(self.names, operands[:-1], strict=True))
        output = functional_call(self.module, (parameters, buffers), (operands[-1],))
        return output if isinstance(output, Tensor) else output[0]


def with_math_attention(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(*operands: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return function(*operands)

    return call


def attention_with_mask(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


class EncoderLayer(nn.TransformerEncoderLayer):
    """Attention written out."""

    def forward(self, src: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return super().forward(src, *args, **kwargs)


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, dropout=0.2)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.zeros(5, 5, dtype=x.dtype).masked_fill(torch.ones(5, 5).triu(1).bool(), -1e9)
        moved, weights = self.attention(x, x, x, attn_mask=mask)
        return torch.cat([moved, weights], -1)


def constant(*shape: int) -> Tensor:
    return torch.linspace(-1, 2, torch.Size(shape).numel(), dtype=torch.float64).view(shape)


INDEX = torch.tensor([2, 0, 0, 1])
MASK = torch.tensor([True, False, True, False])

ELEMENTWISE: dict[str, Case] = {
    "relu": Case(F.relu, (3, 4)),
    "relu in place": Case(lambda x: F.relu(x * 2, inplace=True), (3, 4)),
    "relu6": Case(F.relu6, (3, 4)),
    "leaky relu": Case(F.leaky_relu, (3, 4)),
    "elu": Case(F.elu, (3, 4)),
    "selu": Case(F.selu, (3, 4)),
    "celu": Case(F.celu, (3, 4)),
    "gelu": Case(F.gelu, (3, 4)),
    "gelu by tanh": Case(lambda x: F.gelu(x, approximate="tanh"), (3, 4)),
    "silu": Case(F.silu, (3, 4)),
    "mish": Case(F.mish, (3, 4)),
    "softplus": Case(F.softplus, (3, 4)),
    "sigmoid": Case(torch.sigmoid, (3, 4)),
    "tanh": Case(torch.tanh, (3, 4)),
    "hardtanh": Case(F.hardtanh, (3, 4)),
    "hardswish": Case(F.hardswish, (3, 4)),
    "hardsigmoid": Case(F.hardsigmoid, (3, 4)),
    "threshold": Case(lambda x: F.threshold(x, 0.1, -3.0), (3, 4)),
    "logsigmoid": Case(F.logsigmoid, (3, 4)),
    "abs": Case(torch.abs, (3, 4)),
    "exp": Case(torch.exp, (3, 4)),
    "expm1": Case(torch.expm1, (3, 4)),
    "erf": Case(torch.erf, (3, 4)),
    "reciprocal": Case(torch.reciprocal, (3, 4), positive=True),
    "log": Case(torch.log, (3, 4), positive=True),
    "log1p": Case(torch.log1p, (3, 4), positive=True),
    "sqrt": Case(torch.sqrt, (3, 4), positive=True),
    "rsqrt": Case(torch.rsqrt, (3, 4), positive=True),
    "square": Case(torch.square, (3, 4)),
    "power": Case(lambda x: x**3, (3, 4)),
    "fractional power": Case(lambda x: x**-1.5, (3, 4), positive=True),
    "negative": Case(torch.neg, (3, 4)),
    "sine": Case(torch.sin, (3, 4)),
    "cosine": Case(torch.cos, (3, 4)),
    "clamp": Case(lambda x: x.clamp(-0.5, 0.5), (3, 4)),
    "clamp from below": Case(lambda x: aten.clamp_min.default(x, -0.5), (3, 4)),
    "clamp from above": Case(lambda x: aten.clamp_max.default(x, 0.5), (3, 4)),
    "times a number": Case(lambda x: aten.mul.Scalar(x, 3), (3, 4)),
    "over a number": Case(lambda x: aten.div.Scalar(x, 3), (3, 4)),
    "plus a number": Case(lambda x: aten.add.Scalar(x, 3), (3, 4)),
    "minus a number": Case(lambda x: aten.sub.Scalar(x, 3), (3, 4)),
    "a number minus": Case(lambda x: 3 - x, (3, 4)),
    "fused dropout": Case(lambda x: torch.native_dropout(x, 0.4, True)[0], (3, 4)),
    "masked fill": Case(lambda x: x.masked_fill(MASK, -1e9), (3, 4)),
    "softmax": Case(lambda x: x.softmax(1), (3, 4)),
    "softmax over the first dimension": Case(lambda x: x.softmax(-2), (3, 4)),
    "safe softmax": Case(lambda x: torch._safe_softmax(x, -1), (3, 4)),
    "clone": Case(torch.clone, (3, 4)),
    "alias": Case(aten.alias.default, (3, 4)),
}

LINEAR: dict[str, Case] = {
    "view": Case(lambda x: x.view(2, 6), (3, 4)),
    "view after a transposition": Case(lambda x: x.t().reshape(2, 6), (3, 4)),
    "unsafe view": Case(lambda x: aten._unsafe_view.default(x, [2, 6]), (3, 4)),
    "reshape by alias": Case(lambda x: aten._reshape_alias.default(x, [2, 6], [6, 1]), (3, 4)),
    "flatten": Case(lambda x: x.flatten(1), (3, 4, 2)),
    "squeeze": Case(torch.squeeze, (3, 1, 4)),
    "squeeze one": Case(lambda x: x.squeeze(-2), (3, 1, 4)),
    "squeeze some": Case(lambda x: x.squeeze((1, -1)), (3, 1, 4, 1)),
    "unsqueeze": Case(lambda x: x.unsqueeze(-2), (3, 4)),
    "expand": Case(lambda x: x.expand(2, 3, 4), (3, 1)),
    "repeat": Case(lambda x: x.repeat(2, 1, 3), (3, 4)),
    "matrix transposed": Case(lambda x: x.t(), (3, 4)),
    "transpose": Case(lambda x: x.transpose(0, -1), (3, 4, 2)),
    "transpose in place": Case(lambda x: (2 * x).transpose_(0, -1), (3, 4, 2)),
    "permute": Case(lambda x: x.permute(2, 0, -2), (3, 4, 2)),
    "select": Case(lambda x: x[:, -1], (3, 4, 2)),
    "slice": Case(lambda x: x[:, 1:4:2], (3, 5)),
    "slice to the end": Case(lambda x: x[..., -2:], (3, 5)),
    "narrow": Case(lambda x: x.narrow(1, 1, 3), (3, 5)),
    "index": Case(lambda x: x[INDEX], (3, 4)),
    "index behind a slice": Case(lambda x: x[:, INDEX], (2, 3, 4)),
    "index by a mask": Case(lambda x: x[:, MASK], (3, 4)),
    "index by two": Case(lambda x: x[INDEX, INDEX], (3, 4, 2)),
    "float and back": Case(lambda x: x.float().double(), (3, 4)),
    "mean": Case(lambda x: x.mean(), (3, 4)),
    "mean over some": Case(lambda x: x.mean((0, -1)), (3, 4, 2)),
    "mean kept": Case(lambda x: x.mean(1, keepdim=True), (3, 4, 2)),
    "sum": Case(lambda x: x.sum(), (3, 4)),
    "sum over some": Case(lambda x: x.sum((0, -1), keepdim=True), (3, 4, 2)),
    "sum over one": Case(lambda x: x.sum(-1), (3, 4, 2)),
    "average pool": Case(lambda x: F.avg_pool2d(x, 3, stride=2, padding=1), (2, 3, 7, 7)),
    "average pool without padding": Case(
        lambda x: F.avg_pool2d(x, (2, 3), padding=1, ceil_mode=True, count_include_pad=False), (2, 3, 7, 7)
    ),
    "average pool 1d": Case(lambda x: F.avg_pool1d(x, 2), (2, 3, 7)),
    "adaptive average pool": Case(lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (2, 3, 7, 7)),
    "adaptive average pool to one": Case(lambda x: F.adaptive_avg_pool2d(x, 1), (2, 3, 7, 7)),
    "adaptive average pool 1d": Case(lambda x: F.adaptive_avg_pool1d(x, 3), (2, 3, 7)),
    "max pool": Case(lambda x: F.max_pool2d(x, 2), (2, 3, 6, 6)),
    "overlapping max pool": Case(lambda x: F.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True), (2, 3, 7, 7)),
    "max pool of one image": Case(lambda x: F.max_pool2d(x, 2), (3, 6, 6)),
    "max pool 1d": Case(lambda x: F.max_pool1d(x, 2), (2, 3, 7)),
    "adaptive max pool": Case(lambda x: F.adaptive_max_pool2d(x, 2), (2, 3, 7, 7)),
    "global max pool": Case(lambda x: F.max_pool2d(x, x.shape[-2:]), (2, 3, 5, 5)),
    "zero padding": Case(lambda x: F.pad(x, (1, 2, 0, 1)), (3, 4)),
    "split": Case(lambda x: torch.cat(x.split(2, -1)[::-1], 1), (3, 5)),
    "split, one part used": Case(lambda x: x.split(2, 1)[1], (3, 5)),
    "split by sizes": Case(lambda x: x.split([1, 3, 1], 1)[1] * 2, (3, 5)),
    "chunk": Case(lambda x: x.chunk(3, 1)[2] * x.chunk(3, 1)[0], (3, 6)),
    "unsafe chunk": Case(lambda x: x.unsafe_chunk(3, 1)[2], (3, 6)),
    "unbind": Case(lambda x: x.unbind(-1)[0] * x.unbind(-1)[1], (3, 2)),
    "max over one": Case(lambda x: x.max(1)[0], (3, 4, 2)),
    "max over one, kept": Case(lambda x: x.max(-2, keepdim=True)[0], (3, 4, 2)),
    "min over one": Case(lambda x: x.min(0)[0], (3, 4, 2)),
    "embedding": Case(lambda table: F.embedding(INDEX.view(2, 2), table), (3, 4)),
    "embedding with padding": Case(lambda table: F.embedding(INDEX, table, padding_idx=0), (3, 4)),
    "log softmax": Case(lambda x: x.log_softmax(-1), (3, 4)),
    "cumulated use of one tensor": Case(lambda x: x + x.t() + x @ x, (3, 3)),
}

PRODUCTS: dict[str, Case] = {
    "plus": Case(torch.add, (3, 4), (3, 4)),
    "plus, broadcast": Case(torch.add, (3, 1), (2, 1, 4)),
    "plus a multiple": Case(lambda x, y: torch.add(x, y, alpha=3), (3, 4), (4,)),
    "plus a constant": Case(lambda x: x + constant(2, 3, 4), (4,)),
    "plus one": Case(lambda x: x + 1, (3, 4)),
    "plus in place": Case(lambda x, y: (x * 1).add_(y), (3, 4), (4,)),
    "minus": Case(torch.sub, (3, 1), (4,)),
    "minus a multiple": Case(lambda x, y: torch.sub(x, y, alpha=3), (4,), (3, 1)),
    "minus a constant": Case(lambda x: constant(2, 3, 4) - x, (4,)),
    "times": Case(torch.mul, (3, 4), (3, 4)),
    "times, broadcast": Case(torch.mul, (3, 1), (4,)),
    "times, broadcast over the batch": Case(torch.mul, (4,), (2, 3, 4)),
    "times a constant": Case(lambda x: x * constant(2, 3, 4), (4,)),
    "times three": Case(lambda x: 3 * x, (3, 4)),
    "times a whole number tensor": Case(lambda x: x * INDEX, (3, 4)),
    "times itself": Case(lambda x: x * x, (3, 4)),
    "over": Case(torch.div, (3, 1), (4,), positive=True),
    "over, broadcast": Case(torch.div, (4,), (2, 3, 1), positive=True),
    "over three": Case(lambda x: x / 3, (3, 4)),
    "three over": Case(lambda x: 3 / x, (3, 4), positive=True),
    "a constant over": Case(lambda x: constant(2, 3, 4) / x, (4,), positive=True),
    "where": Case(lambda x, y: torch.where(MASK, x, y), (3, 4), (3, 4)),
    "where, condition broadcast": Case(lambda x, y: torch.where(MASK, x, y), (3, 1), (2, 1, 1)),
    "where, one branch wider": Case(lambda x, y: torch.where(MASK, x, y), (4,), (3, 4)),
    "where, else a constant": Case(lambda x: torch.where(MASK, x, constant(3, 4)), (4,)),
    "where, else a number": Case(lambda x: torch.where(MASK, x, 0.0), (3, 4)),
    "cat": Case(lambda x, y: torch.cat([x, y], -1), (3, 4), (3, 2)),
    "cat with a constant": Case(lambda x: torch.cat([constant(3, 2), x, constant(1, 2), x]), (5, 2)),
    "cat with its source": Case(lambda x, y: torch.cat([x, (y @ x).relu(), x], 0), (3, 4), (5, 3)),
    "cat of one": Case(lambda x: torch.cat([x]), (3, 4)),
    "stack": Case(lambda x, y: torch.stack([x, y, x], -1), (3, 4), (3, 4)),
    "stack with a constant": Case(lambda x: torch.stack([constant(3, 4), x], 1), (3, 4)),
    "mm": Case(torch.mm, (3, 4), (4, 2)),
    "bmm": Case(torch.bmm, (2, 3, 4), (2, 4, 5)),
    "matmul, broadcast": Case(torch.matmul, (2, 3, 4), (4, 5)),
    "matrix times vector": Case(torch.matmul, (3, 4), (4,)),
    "addmm": Case(lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), (5,), (3, 4), (4, 5)),
    "baddbmm": Case(lambda b, x, y: torch.baddbmm(b, x, y, beta=0.5, alpha=2), (3, 1), (2, 3, 4), (2, 4, 5)),
    "einsum": Case(lambda x, y: torch.einsum("bchw,dc->bdhw", x, y), (2, 3, 4, 4), (5, 3)),
    "einsum over the batch": Case(lambda x, y: torch.einsum("bic,bjc->bij", x, y), (2, 3, 4), (2, 5, 4)),
    "linear": Case(F.linear, (3, 4), (5, 4), (5,)),
    "linear on sequences": Case(F.linear, (2, 3, 4), (5, 4), (5,)),
    "linear on sequences without bias": Case(F.linear, (2, 3, 4), (5, 4)),
    "dropout": Case(lambda x, y: F.dropout(x @ y, 0.3), (3, 4), (4, 5)),
    "attention": Case(with_math_attention(F.scaled_dot_product_attention), (2, 2, 5, 3), (2, 2, 5, 3), (2, 2, 5, 3)),
    "fused attention": Case(F.scaled_dot_product_attention, (2, 2, 5, 3), (2, 2, 7, 3), (2, 2, 7, 3)),
    "fused attention with a mask": Case(attention_with_mask, (2, 2, 5, 3), (2, 2, 5, 3), (2, 2, 5, 3)),
    "fused causal attention": Case(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3), *3 * [(2, 2, 5, 3)]
    ),
    "attention with a mask": Case(with_math_attention(attention_with_mask), (2, 2, 5, 3), (2, 2, 5, 3), (2, 2, 5, 3)),
}

NETS: dict[str, Case] = {
    "conv 1d": Net(lambda: nn.Conv1d(3, 4, 3, padding=1), (5, 3, 7)),
    "conv 2d": Net(lambda: nn.Conv2d(3, 4, 3), (5, 3, 6, 6)),
    "conv 2d of one image": Net(lambda: nn.Conv2d(3, 4, 3), (3, 6, 6)),
    "conv 3d": Net(lambda: nn.Conv3d(2, 3, 2), (2, 2, 4, 4, 4)),
    "conv without bias": Net(lambda: nn.Conv2d(3, 4, 3, bias=False), (2, 3, 6, 6)),
    "grouped conv": Net(lambda: nn.Conv2d(4, 6, 3, groups=2), (3, 4, 6, 6)),
    "depthwise conv": Net(lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), (3, 4, 6, 6)),
    "strided, dilated conv": Net(lambda: nn.Conv2d(3, 4, 3, stride=2, dilation=2, padding=2), (9, 3, 8, 8)),
    "same-padded conv": Net(lambda: nn.Conv2d(3, 4, 4, padding="same"), (2, 3, 6, 6)),
    "transposed conv": Net(lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), (6, 3, 4, 4)),
    "transposed grouped conv": Net(lambda: nn.ConvTranspose1d(4, 6, 3, groups=2, bias=False), (2, 4, 5)),
    "batch norm": Net(lambda: nn.BatchNorm2d(3), (4, 3, 5, 5)),
    "batch norm without affine": Net(lambda: nn.BatchNorm2d(3, affine=False), (4, 3, 5, 5)),
    "batch norm of rows": Net(lambda: nn.BatchNorm1d(3), (6, 3)),
    "batch norm at rest": Net(lambda: nn.BatchNorm2d(3), (4, 3, 5, 5), training=False),
    "batch norm at rest without affine": Net(lambda: nn.BatchNorm1d(3, affine=False), (6, 3), training=False),
    "batch norm without statistics": Net(lambda: nn.BatchNorm1d(3, track_running_stats=False), (6, 3), training=False),
    "instance norm": Net(lambda: nn.InstanceNorm2d(3, affine=True), (4, 3, 5, 5)),
    "layer norm": Net(lambda: nn.LayerNorm(4), (2, 3, 4)),
    "layer norm over two": Net(lambda: nn.LayerNorm((3, 4)), (2, 3, 4)),
    "layer norm without affine": Net(lambda: nn.LayerNorm(4, elementwise_affine=False), (2, 3, 4)),
    "layer norm without bias": Net(lambda: nn.LayerNorm(4, bias=False), (2, 3, 4)),
    "group norm": Net(lambda: nn.GroupNorm(2, 4), (3, 4, 5, 5)),
    "group norm of rows": Net(lambda: nn.GroupNorm(2, 4), (3, 4)),
    "group norm without affine": Net(lambda: nn.GroupNorm(2, 4, affine=False), (3, 4, 5)),
    "rms norm": Net(lambda: nn.RMSNorm(4), (2, 3, 4)),
    "conv, norm, relu in place, pool": Net(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        (5, 3, 6, 6),
    ),
    "channels last": Net(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2)).to(
            memory_format=torch.channels_last
        ),
        (5, 3, 6, 6),
    ),
    "recurrent": Net(lambda: nn.RNN(3, 4, batch_first=True), (2, 5, 3)),
    "gated recurrent": Net(lambda: nn.GRU(3, 4, num_layers=2, batch_first=True), (2, 5, 3)),
    "transformer layer": Net(lambda: EncoderLayer(4, 2, 8, batch_first=True), (2, 5, 4)),
    "transformer layer, norm first": Net(
        lambda: EncoderLayer(4, 2, 8, activation="gelu", norm_first=True, dropout=0.0), (5, 2, 4)
    ),
    "attention with its weights": Net(SelfAttention, (2, 5, 4)),
}


CASES: dict[str, Case] = {**ELEMENTWISE, **LINEAR, **PRODUCTS, **NETS}

# No operation on a CPU records these; the last one needs several processes (tests/support/two_ranks.py).
ELSEWHERE = {"CudnnBatchNormBackward0", "MiopenBatchNormBackward0", "_MeanBackward"}


def tangent_by_dual_numbers(case: Case, operands: list[Tensor], moves: list[Tensor | None]) -> Tensor:
    with torch.no_grad(), forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):  # fused kernels have no forward mode
        duals = [
            x.detach() if d is None else forward_ad.make_dual(x.detach(), d)
            for x, d in zip(operands, moves, strict=True)
        ]
        value, tangent = forward_ad.unpack_dual(case(*duals))
    return torch.zeros_like(value) if tangent is None else tangent


def nodes(output: Tensor) -> set[str]:
    """The names of all operations that the graph of this tensor holds."""
    found, stack = set(), [output.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in found:
            found.add(node)
            stack.extend(source for source, _ in node.next_functions)
    return {node.name() for node in found} - {"torch::autograd::AccumulateGrad"}


def choices_of_what_moves(count: int) -> list[list[bool]]:
    """All together, then each alone."""
    alone = [[place == mover for place in range(count)] for mover in range(count)]
    return [[True] * count] if count == 1 else [[True] * count, *alone]


@pytest.mark.parametrize("name", CASES)
def test_the_tangent_from_the_graph_is_the_forward_mode_one(name: str) -> None:
    case = CASES[name]
    operands = case.operands()
    output = case(*operands)
    generator = torch.Generator().manual_seed(3)
    draws = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in operands]
    for moving in choices_of_what_moves(len(operands)):
        moves = [draw if moves_ else None for draw, moves_ in zip(draws, moving, strict=True)]
        expected = tangent_by_dual_numbers(case, operands, moves)
        tangent = graph_tangent(output, operands, moves)
        assert tangent.shape == output.shape
        tolerance = 1e-6 if name == "float and back" else 1e-10
        torch.testing.assert_close(tangent, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_operands_that_need_no_gradient_are_constants(name: str) -> None:
    """What a frozen layer does not save must not be asked for."""
    case = CASES[name]
    for mover in range(len(case.shapes)):
        operands = [x.requires_grad_(place == mover) for place, x in enumerate(case.operands())]
        output = case(*operands)
        moves: list[Tensor | None] = [torch.ones_like(x) if x.requires_grad else None for x in operands]
        expected = tangent_by_dual_numbers(case, operands, moves)
        torch.testing.assert_close(graph_tangent(output, operands, moves), expected, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_reading_the_tangent_leaves_the_graph_and_its_gradients_as_they_were(name: str) -> None:
    case = CASES[name]
    operands = case.operands()
    output = case(*operands)
    seed = torch.ones_like(output)
    before = torch.autograd.grad(output, operands, seed, retain_graph=True, allow_unused=True)
    moves: list[Tensor | None] = [torch.ones_like(x) for x in operands]
    first = graph_tangent(output, operands, moves)
    kept = first.clone()
    again = graph_tangent(output, operands, moves)
    assert torch.equal(again, kept)
    assert torch.equal(first, kept)  # and no tangent handed out is written to later
    after = torch.autograd.grad(output, operands, seed, allow_unused=True)
    for one, other in zip(before, after, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


def test_every_rule_that_can_occur_on_a_cpu_has_a_case() -> None:
    covered = set()
    for case in CASES.values():
        covered |= nodes(case(*case.operands()))
    assert set(RULES) - covered == ELSEWHERE


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_what_is_listed_as_symmetric_is_symmetric(name: str) -> None:
    case = ELEMENTWISE[name]
    (x,) = case.operands()
    assert nodes(case(x)) & set(SYMMETRIC)
    jacobian = torch.autograd.functional.jacobian(case, x).reshape(x.numel(), x.numel())
    torch.testing.assert_close(jacobian, jacobian.t(), rtol=1e-12, atol=1e-12)


def test_every_name_listed_as_symmetric_is_among_those_tested() -> None:
    tested = set()
    for case in ELEMENTWISE.values():
        tested |= nodes(case(*case.operands()))
    assert set(SYMMETRIC) <= tested


# Operations without a rule of their own: differentiated through their backward.
RULELESS: dict[str, Case] = {
    "prefix sums": Case(lambda x: x.cumsum(0), (3, 4)),
    "prefix products": Case(lambda x: x.cumprod(1), (3, 4)),
    "strided view": Case(lambda x: x.as_strided((3, 2), (4, 2), 1), (4, 4)),
    "strided view of a transpose": Case(lambda x: x.t().as_strided((3, 2), (4, 2), 1), (4, 4)),
    "slice written in place": Case(lambda x, y: _written(x, y), (3, 2), (3, 4)),
    "sort": Case(lambda x: x.sort(1).values, (3, 4)),
    "spectrum": Case(lambda x: torch.fft.rfft(x).abs(), (3, 4)),
    "bilinear resizing": Case(lambda x: F.interpolate(x, size=(7, 5), mode="bilinear"), (2, 3, 4, 4)),
    "inverse": Case(lambda x: torch.linalg.inv(x + 4 * torch.eye(3, dtype=x.dtype)), (3, 3)),
    "several outputs": Case(lambda x: torch.linalg.slogdet(x)[1] * torch.linalg.norm(x), (3, 3)),
}


def _written(x: Tensor, y: Tensor) -> Tensor:
    found = 2 * y
    found[:, 1:3] = x
    return found * y


@pytest.mark.parametrize("name", RULELESS)
def test_operations_without_a_rule_are_differentiated_through_their_backward(name: str) -> None:
    case = RULELESS[name]
    operands = case.operands()
    output = case(*operands)
    assert nodes(output) - set(RULES), "it has rules for everything now: no case for this test"
    for chosen in choices_of_what_moves(len(operands)):
        moves = [torch.randn_like(x) if moved else None for x, moved in zip(operands, chosen, strict=True)]
        expected = tangent_by_dual_numbers(case, operands, moves)
        torch.testing.assert_close(graph_tangent(output, operands, moves), expected, rtol=1e-12, atol=1e-12)


class Cut(torch.autograd.Function):
    """A backward that is cut off from its argument."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient.detach()


def test_an_operation_that_cannot_be_differentiated_is_named() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(Unsupported, match="CutBackward"):
        graph_tangent(Cut.apply(x), [x], [torch.ones_like(x)])
    with pytest.raises(Unsupported, match="EmbeddingBagBackward0"):
        graph_tangent(F.embedding_bag(torch.tensor([[0, 1]]), x), [x], [torch.ones_like(x)])


def test_an_output_that_does_not_depend_on_what_moves_has_no_tangent() -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    move = torch.ones(3)
    assert not graph_tangent(x * 2, [x, y], [None, move]).any()
    assert not graph_tangent(x.detach(), [x], [move]).any()
    assert not graph_tangent(x.cumsum(0), [y], [move]).any()  # no rule is needed where nothing moves

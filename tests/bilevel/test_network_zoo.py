"""Networks as people have them: the exact label gradient against an independent double backward, in float64."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from mslg.bilevel import Bilevel
from mslg.bilevel import tangent_modes as tangents
from mslg.data.batch import arguments, logits_of
from mslg.training import losses
from tests.support.libraries import timm_or_skip, transformers_or_skip

CLASSES, BATCH, LOOK_AHEAD = 3, 6, 0.3
GRAPH = "the recorded graph"


def floats(*shape: int) -> Callable[[torch.Generator], Tensor]:
    return lambda draw: torch.randn(BATCH, *shape, generator=draw, dtype=torch.float64)


class TwoSequences(nn.Module):
    """An LSTM over two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.LSTM(4, 5, batch_first=True), nn.LSTM(3, 5, batch_first=True)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        found: Tensor = self.head(torch.cat([self.left(left)[0][:, -1], self.right(right)[1][0][-1]], 1))
        return found


class Encoder(nn.Module):
    """A transformer encoder with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        rows = self.encoder(self.words(tokens), src_key_padding_mask=~mask)
        found: Tensor = self.head((rows * mask.unsqueeze(2)).sum(1) / mask.sum(1, keepdim=True))
        return found


class Causal(nn.Module):
    """Causal attention by one fused call, with a scale of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.head = nn.Linear(6, 24), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.rows(x).unflatten(2, (2, 12)).transpose(1, 2).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.7)
        found: Tensor = self.head(mixed.transpose(1, 2).flatten(2)[:, -1])
        return found


class Windows(nn.Module):
    """Overlapping windows as strided views, sums of prefixes, a sorted row, a slice written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.head = nn.Linear(6, 8), nn.Linear(11, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.rows(x).tanh()
        windows = rows.as_strided((len(rows), 3, 3), (8, 2, 1), 1).prod(2)
        prefixes = rows.cumsum(1).sort(1).values[:, ::2]
        written = torch.zeros_like(prefixes)
        written[:, 1:3] = rows[:, :2] * rows[:, 2:4]
        found: Tensor = self.head(torch.cat([windows, prefixes, written], 1))
        return found


class Tied(nn.Module):
    """The same matrix at both ends, and a frozen layer between."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.middle, self.head = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.words.weight
        self.middle.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.middle(self.words(tokens).mean(1)).tanh())[:, :CLASSES]
        return found


class Checkpointed(nn.Module):
    """Blocks whose activations are computed again in the backward pass, or not."""

    def __init__(self, use_reentrant: bool | None) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.first = nn.Linear(6, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).tanh()
        for block in self.blocks:
            x = block(x) if self.use_reentrant is None else checkpoint(block, x, use_reentrant=self.use_reentrant)
        found: Tensor = self.head(x)
        return found


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3),
        nn.GroupNorm(2, 6),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, CLASSES),
    )


def spectral(wrap: Callable[[nn.Module], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        wrap(nn.Linear(6, 8)), nn.Tanh(), wrap(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, CLASSES)
    )


def bert() -> nn.Module:
    library = transformers_or_skip()
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    rest = {"vocab_size": 40, "num_labels": CLASSES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    network: nn.Module = library.BertForSequenceClassification(library.BertConfig(**size, **rest))
    return network


def vit() -> nn.Module:
    library = transformers_or_skip()
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    rest = {"image_size": 8, "patch_size": 4, "num_channels": 2, "num_labels": CLASSES, "hidden_dropout_prob": 0.0}
    network: nn.Module = library.ViTForImageClassification(library.ViTConfig(**size, **rest))
    return network


def timm(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        timm_or_skip()
        import timm as library

        network: nn.Module = library.create_model(name, num_classes=CLASSES, in_chans=3)
        return network

    return build


def tokens(draw: torch.Generator, words: int = 11) -> tuple[Tensor, Tensor]:
    """Sequences of different lengths, and which of their places are filled."""
    mask = torch.arange(5) < torch.randint(2, 6, (BATCH, 1), generator=draw)
    return torch.randint(0, words, (BATCH, 5), generator=draw), mask


def tokens_by_name(draw: torch.Generator) -> dict[str, Tensor]:
    words, mask = tokens(draw, 40)
    return {"input_ids": words, "attention_mask": mask.long()}


class Kind(NamedTuple):
    build: Callable[[], nn.Module]
    inputs: Callable[[torch.Generator], Any]
    plain: Callable[[], nn.Module] | None = None  # the same network without what double backward cannot go through


ZOO: dict[str, Kind] = {
    "cnn": Kind(convolutional, floats(2, 10, 10)),
    "lstm with two inputs": Kind(TwoSequences, lambda draw: (floats(4, 4)(draw), floats(3, 3)(draw))),
    "transformer encoder with mask": Kind(Encoder, tokens),
    "causal attention": Kind(Causal, floats(5, 6)),
    "strided views": Kind(Windows, floats(6)),
    "tied and frozen": Kind(Tied, lambda draw: tokens(draw)[0]),
    "checkpoints": Kind(lambda: Checkpointed(False), floats(6), lambda: Checkpointed(None)),
    "reentrant checkpoints": Kind(lambda: Checkpointed(True), floats(6), lambda: Checkpointed(None)),
    "spectral norm": Kind(spectral(parametrizations.spectral_norm), floats(6)),
    "spectral norm by hooks": Kind(spectral(nn.utils.spectral_norm), floats(6)),
    "bert": Kind(bert, tokens_by_name),
    "vit": Kind(vit, lambda draw: {"pixel_values": floats(2, 8, 8)(draw)}),
    "timm resnet": Kind(timm("test_resnet"), floats(3, 32, 32)),
    "timm vit": Kind(timm("test_vit"), floats(3, 160, 160)),
}
NO_FORWARD_MODE = {"lstm with two inputs", "spectral norm", "spectral norm by hooks"}
SLOW = {"timm resnet", "timm vit", "bert", "vit"}
every = pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in ZOO])


class Problem:
    """A network, two batches, and a soft label for each noisy sample."""

    def __init__(self, kind: Kind) -> None:
        torch.manual_seed(0)
        self.network = kind.build().double().train()
        self.reference = self.network
        if kind.plain is not None:
            self.reference = kind.plain().double().train()
            self.reference.load_state_dict(self.network.state_dict())
        draw = torch.Generator().manual_seed(1)
        self.inputs, self.clean_inputs = kind.inputs(draw), kind.inputs(draw)
        self.given, self.clean_label = (torch.randint(0, CLASSES, (BATCH,), generator=draw) for _ in range(2))
        self.label_logits = 4 * F.one_hot(self.given, CLASSES).double()
        self.buffers = {name: buffer.clone() for name, buffer in self.network.named_buffers()}

    def by_the_engine(self, **options: Any) -> tuple[Tensor, Bilevel]:
        """The gradient of the clean loss with respect to the label logits: (look-ahead / batch)·D_g p."""
        engine, log_soft = Bilevel(self.network, **options), self.label_logits.log_softmax(1)
        meta = engine(
            self.inputs,
            lambda logits: losses.reverse_kl(logits.log_softmax(1), log_soft).mean(),
            self.clean_inputs,
            lambda logits: F.cross_entropy(logits, self.clean_label),
            look_ahead=LOOK_AHEAD,
        )
        direction = losses.probability_tangent(meta.logits.detach().log_softmax(1), meta.tangent)
        return LOOK_AHEAD / BATCH * direction, engine

    def by_double_backward(self) -> Tensor:
        """The same by differentiating the whole step, with nothing of the engine."""
        network, label_logits = self.reference, self.label_logits.clone().requires_grad_()
        parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
        buffers = {name: buffer.clone() for name, buffer in self.buffers.items()}

        def logits_at(weights: Any, inputs: Any) -> Tensor:
            args, kwargs = arguments(inputs)
            return logits_of(functional_call(network, (weights, buffers), args, kwargs))

        with sdpa_kernel(SDPBackend.MATH):
            log_probs = logits_at(parameters, self.inputs).log_softmax(1)
            difference = log_probs - label_logits.log_softmax(1)
            inner = (log_probs.exp() * difference).sum(1).mean()
            gradients = torch.autograd.grad(inner, list(parameters.values()), create_graph=True, allow_unused=True)
            ahead = {
                name: p if g is None else p - LOOK_AHEAD * g
                for (name, p), g in zip(parameters.items(), gradients, strict=True)
            }
            loss = F.cross_entropy(logits_at(ahead, self.clean_inputs), self.clean_label)
            return torch.autograd.grad(loss, label_logits)[0]


@every
@pytest.mark.parametrize("recompute", [False, True])
def test_exact_is_exact(name: str, recompute: bool, caplog: pytest.LogCaptureFixture) -> None:
    problem = Problem(ZOO[name])
    expected = problem.by_double_backward()
    with caplog.at_level(logging.INFO, logger="mslg"):
        found, engine = problem.by_the_engine(recompute=recompute)
    assert engine.way == GRAPH
    assert not [record for record in caplog.records if "tangent" in record.getMessage()]
    assert (found - expected).norm() < 1e-10 * expected.norm()
    assert expected.norm() > 1e-8


@every
@pytest.mark.parametrize(
    "way", [tangents.dual_numbers_with_math_attention, tangents.double_backward_with_math_attention]
)
def test_so_is_every_other_exact_way(name: str, way: tangents.TangentFunction) -> None:
    problem = Problem(ZOO[name])
    if way is tangents.dual_numbers_with_math_attention and name in NO_FORWARD_MODE:
        pytest.skip(f"torch has no forward mode for {name}")
    engine = Bilevel(problem.network)
    forward = engine.forward(problem.inputs)
    draw = torch.Generator().manual_seed(3)
    direction = [torch.randn(p.shape, generator=draw, dtype=p.dtype) for p in engine.parameters]
    expected = tangents.from_graph(forward, direction)
    assert (way(forward, direction) - expected).norm() < 1e-10 * expected.norm()


@pytest.mark.parametrize("name", ["checkpoints", "reentrant checkpoints"])
@pytest.mark.parametrize("look_ahead", [0.002, 0.05, 0.5])
def test_checkpoints_are_run_again_at_the_weights_ahead(name: str, look_ahead: float) -> None:
    """They once ran with the weights of before, or were left out: an error of 1e-4 to 1e-2, or a cosine of 0.64."""
    problem, plain = Problem(ZOO[name]), Problem(ZOO["checkpoints"]._replace(build=lambda: Checkpointed(None)))
    plain.network.load_state_dict(problem.network.state_dict())

    def direction(network: nn.Module) -> list[Tensor]:
        engine = Bilevel(network)
        ahead = [p.detach() + look_ahead for p in engine.parameters]
        found, _ = engine.clean_gradient(
            ahead, problem.clean_inputs, lambda logits: F.cross_entropy(logits, problem.given)
        )
        return [g for g in found if g is not None]

    for one, other in zip(direction(problem.network), direction(plain.network), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_training_goes_on_through_checkpoints(use_reentrant: bool) -> None:
    problem = Problem(ZOO["checkpoints"]._replace(build=lambda: Checkpointed(use_reentrant)))
    for network in (problem.network, problem.reference):
        meta = Bilevel(network)(
            problem.inputs,
            lambda logits: F.cross_entropy(logits, problem.given),
            problem.clean_inputs,
            lambda logits: F.cross_entropy(logits, problem.clean_label),
            look_ahead=LOOK_AHEAD,
        )
        F.cross_entropy(meta.logits, problem.given).backward()
    for one, other in zip(problem.network.parameters(), problem.reference.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-12, atol=1e-14)


class Hidden(nn.Module):
    """A layer that autograd does not see, as in checkpoints of other libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.seen, self.unseen, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.seen(x)
        found: Tensor = self.head(x + self.unseen(x).detach())
        return found


def test_parameters_that_drop_out_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    problem = Problem(Kind(Hidden, floats(6)))
    engine = Bilevel(problem.network)
    with caplog.at_level(logging.WARNING, logger="mslg"):
        for _ in range(2):
            weights = [p.detach() for p in engine.parameters]
            engine.clean_gradient(weights, problem.inputs, lambda logits: F.cross_entropy(logits, problem.given))
    (told,) = caplog.records
    assert told.getMessage().startswith(
        "Hidden: 2 of 6 trainable parameters have no gradient in the clean pass, such as unseen.bias; the label "
        "gradient takes them for constants."
    )


@pytest.mark.parametrize("how", ["torch.compile", "module.compile", "a part"])
def test_a_compiled_network_is_trained_as_it_was_before(how: str, caplog: pytest.LogCaptureFixture) -> None:
    problem = Problem(ZOO["cnn"])
    expected = problem.by_double_backward()
    network: Any = problem.network
    if how == "torch.compile":
        problem.network = torch.compile(network)  # type: ignore[assignment]
    elif how == "module.compile":
        network.compile()
    else:
        network[0] = torch.compile(network[0])
    with caplog.at_level(logging.INFO, logger="mslg"):
        found, engine = problem.by_the_engine()
    assert engine.network is network
    assert (found - expected).norm() < 1e-10 * expected.norm()
    assert "Sequential was compiled; it is trained as it was before torch.compile" in caplog.text

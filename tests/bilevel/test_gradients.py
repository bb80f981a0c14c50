"""The engine's label gradients against the naive bilevel map, differentiated twice and by finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from mslg.bilevel import Bilevel, BilevelOutput
from mslg.training import losses

CLASSES = 4
LOOK_AHEAD = 0.5


class Problem(NamedTuple):
    network: nn.Module
    inputs: Tensor
    label_logits: Tensor  # (batch, classes)
    clean_inputs: Tensor
    clean_label: Tensor

    def to(self, dtype: torch.dtype) -> Problem:
        return Problem(
            self.network.to(dtype),
            self.inputs.to(dtype),
            self.label_logits.to(dtype),
            self.clean_inputs.to(dtype),
            self.clean_label,
        )


def tanh_net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def dropout_net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Dropout(0.4), nn.Linear(16, CLASSES), nn.Dropout(0.2))


def smooth_conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * 49, CLASSES)
    )


def paper_net(width: int = 4) -> nn.Module:
    """The paper's eight layers, a sixteenth as wide and for 16×16 images."""
    layers: list[nn.Module] = []
    channels = 3
    for after in (width, 2 * width, 3 * width):
        for before in (channels, after):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
        channels = after
    hidden = 4 * width
    head = [nn.Linear(4 * channels, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, CLASSES)]
    return nn.Sequential(*layers, nn.Flatten(), *head)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "tanh": (tanh_net, (5,)),
    "dropout": (dropout_net, (5,)),
    "smooth convolutions": (smooth_conv_net, (3, 16, 16)),
    "the paper's": (paper_net, (3, 16, 16)),
}
SMOOTH = ["tanh", "dropout", "smooth convolutions"]


def problem(name: str = "tanh", *, batch: int = 7, clean: int = 6) -> Problem:
    build, shape = NETS[name]
    torch.manual_seed(0)
    network = build().double().train()
    draw = torch.Generator().manual_seed(1)
    return Problem(
        network,
        torch.randn(batch, *shape, dtype=torch.float64, generator=draw),
        2 * torch.randn(batch, CLASSES, dtype=torch.float64, generator=draw),
        torch.randn(clean, *shape, dtype=torch.float64, generator=draw),
        torch.randint(0, CLASSES, (clean,), generator=draw),
    )


def reverse_kl(logits: Tensor, label_logits: Tensor) -> Tensor:
    """Mean over the batch of KL(p ‖ softmax u), written out."""
    log_p, log_soft = logits.log_softmax(1), label_logits.log_softmax(1)
    return (log_p.exp() * (log_p - log_soft)).sum(1).mean()


def forward_kl(logits: Tensor, soft: Tensor) -> Tensor:
    """Mean over the batch of KL(soft ‖ p)."""
    return (soft * (soft.log() - logits.log_softmax(1))).sum(1).mean()


Inner = Callable[[Tensor, Tensor], Tensor]


def naive_clean_loss(case: Problem, inner: Inner, what_enters: Tensor, look_ahead: float) -> Tensor:
    """The clean loss after one gradient step of the inner loss, as a function that autograd can differentiate."""
    torch.manual_seed(2)  # the same dropout masks at every call, and for the engine
    network = case.network
    parameters = dict(network.named_parameters())

    def logits(weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        output: Tensor = functional_call(network, (weights, buffers), (inputs,))
        return output

    loss = inner(logits(parameters, case.inputs), what_enters)
    gradient = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    ahead = {name: p - look_ahead * g for (name, p), g in zip(parameters.items(), gradient, strict=True)}
    return F.cross_entropy(logits(ahead, case.clean_inputs), case.clean_label)


def naive_gradient(case: Problem, inner: Inner, what_enters: Tensor, look_ahead: float = LOOK_AHEAD) -> Tensor:
    leaf = what_enters.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(naive_clean_loss(case, inner, leaf, look_ahead), leaf)
    return gradient


def engine_meta(
    case: Problem, inner: Inner, what_enters: Tensor, look_ahead: float = LOOK_AHEAD, **options: Any
) -> BilevelOutput:
    torch.manual_seed(2)
    return Bilevel(case.network, **options)(
        case.inputs,
        lambda logits: inner(logits, what_enters),
        case.clean_inputs,
        lambda logits: F.cross_entropy(logits, case.clean_label),
        look_ahead=look_ahead,
    )


def label_gradient(case: Problem, look_ahead: float = LOOK_AHEAD, **options: Any) -> Tensor:
    """(look_ahead/N)·D_g p, the engine's derivative of the clean loss with respect to the label logits."""
    meta = engine_meta(case, reverse_kl, case.label_logits, look_ahead, **options)
    return look_ahead / len(case.inputs) * tangent_of_probabilities(meta)


def tangent_of_probabilities(meta: BilevelOutput) -> Tensor:
    p = meta.logits.detach().softmax(1)
    return p * (meta.tangent - (p * meta.tangent).sum(1, keepdim=True))


def relative_error(value: Tensor, reference: Tensor) -> float:
    return float((value - reference).norm() / reference.norm())


@pytest.mark.parametrize("options", [{}, {"recompute": True}, {"mode": "double-backward"}], ids=str)
@pytest.mark.parametrize("name", NETS)
def test_the_exact_label_gradient_is_that_of_double_backward(name: str, options: dict[str, Any]) -> None:
    case = problem(name)
    expected = naive_gradient(case, reverse_kl, case.label_logits)
    assert expected.abs().max() > 1e-6
    assert relative_error(label_gradient(case, **options), expected) < 1e-8


@pytest.mark.parametrize("central", [False, True], ids=["one-sided", "central"])
@pytest.mark.parametrize("name", NETS)
def test_the_difference_is_close_to_the_exact_label_gradient(name: str, central: bool) -> None:
    case = problem(name)
    exact = label_gradient(case)
    tolerance = 1e-6 if name in SMOOTH else 1e-4
    assert relative_error(label_gradient(case, mode="difference", central=central), exact) < tolerance


@pytest.mark.parametrize("central", [False, True], ids=["one-sided", "central"])
@pytest.mark.parametrize("name", NETS)
def test_in_single_precision_the_difference_still_points_the_same_way(name: str, central: bool) -> None:
    exact = label_gradient(problem(name, batch=32, clean=32))
    single = problem(name, batch=32, clean=32).to(torch.float32)
    difference = label_gradient(single, mode="difference", central=central).double()
    assert F.cosine_similarity(difference.flatten(), exact.flatten(), 0) >= 0.99
    assert relative_error(label_gradient(single).double(), exact) < 1e-3


@pytest.mark.parametrize("name", NETS)
def test_the_label_gradient_is_the_finite_difference_of_the_whole_bilevel_map(name: str) -> None:
    case = problem(name)
    gradient = label_gradient(case)
    largest, step = gradient.abs().max().item(), 1e-6
    for row, column in [(0, 0), (2, 3), (6, 1)]:
        moved = []
        for sign in (1, -1):
            label_logits = case.label_logits.clone()
            label_logits[row, column] += sign * step
            moved.append(naive_clean_loss(case, reverse_kl, label_logits, LOOK_AHEAD).item())
        difference = (moved[0] - moved[1]) / (2 * step)
        assert difference == pytest.approx(gradient[row, column].item(), rel=1e-6, abs=1e-6 * largest)


def test_the_clean_loss_reported_is_the_one_at_the_looked_ahead_weights() -> None:
    case = problem("the paper's")
    meta = engine_meta(case, reverse_kl, case.label_logits)
    expected = naive_clean_loss(case, reverse_kl, case.label_logits, LOOK_AHEAD)
    assert meta.clean_loss.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("name", ["tanh", "the paper's"])
def test_the_forward_kl_formulas_hold(name: str) -> None:
    """With respect to the soft label (look_ahead/N)·D_g log p, and through its softmax to the label logits."""
    case = problem(name)
    soft = case.label_logits.softmax(1)
    meta = engine_meta(case, forward_kl, soft)
    p = meta.logits.detach().softmax(1)
    tangent_of_log_p = meta.tangent - (p * meta.tangent).sum(1, keepdim=True)
    scale = LOOK_AHEAD / len(case.inputs)
    by_soft = naive_gradient(case, lambda z, s: -(s * z.log_softmax(1)).sum(1).mean(), soft)
    assert relative_error(scale * tangent_of_log_p, by_soft) < 1e-8
    by_logits = naive_gradient(case, lambda z, u: forward_kl(z, u.softmax(1)), case.label_logits)
    through_softmax = torch.stack(
        [(torch.diag(row) - torch.outer(row, row)) @ move for row, move in zip(soft, tangent_of_log_p, strict=True)]
    )
    assert relative_error(scale * through_softmax, by_logits) < 1e-8


@pytest.mark.parametrize("name", ["tanh", "the paper's"])
def test_the_gradient_of_sample_weights_is_minus_the_tangent_of_their_losses(name: str) -> None:
    case = problem(name)
    given = case.label_logits.argmax(1)
    weight = torch.linspace(0.1, 0.9, len(given), dtype=torch.float64)

    def weighted(logits: Tensor, weight: Tensor) -> Tensor:
        return (weight * F.cross_entropy(logits, given, reduction="none")).mean()

    meta = engine_meta(case, weighted, weight)
    residual = meta.logits.detach().softmax(1) - F.one_hot(given, CLASSES)
    ours = -LOOK_AHEAD / len(given) * (residual * meta.tangent).sum(1)
    assert relative_error(ours, naive_gradient(case, weighted, weight)) < 1e-8


def test_weights_that_start_at_zero_need_no_look_ahead() -> None:
    """Learning to reweight: the weights' gradient at zero, where θ̂ = θ whatever the step."""
    case = problem()
    given = case.label_logits.argmax(1)

    def weighted(logits: Tensor, weight: Tensor) -> Tensor:
        return (weight * F.cross_entropy(logits, given, reduction="none")).sum()

    zero = torch.zeros(len(given), dtype=torch.float64)
    meta = engine_meta(case, weighted, zero, look_ahead=0.0)
    residual = meta.logits.detach().softmax(1) - F.one_hot(given, CLASSES)
    ours = -LOOK_AHEAD * (residual * meta.tangent).sum(1)
    assert relative_error(ours, naive_gradient(case, weighted, zero)) < 1e-8


def test_the_papers_gradients_of_its_two_losses_hold() -> None:
    """∂L_c,1/∂f = −ŷ/f and ∂L_c,2/∂f = 1 + log(f/ŷ), with f the predicted probabilities."""
    case = problem()
    soft = case.label_logits.softmax(1)
    probs = case.network(case.inputs).detach().softmax(1).requires_grad_()
    (first,) = torch.autograd.grad(losses.forward_kl(probs.log(), soft.log()).sum(), probs)
    torch.testing.assert_close(first, -soft / probs.detach(), rtol=1e-12, atol=1e-12)
    (second,) = torch.autograd.grad(losses.reverse_kl(probs.log(), soft.log()).sum(), probs)
    torch.testing.assert_close(second, 1 + (probs.detach() / soft).log(), rtol=1e-12, atol=1e-12)


def test_divergence_plus_entropy_is_the_reverse_cross_entropy() -> None:
    case = problem()
    log_p, log_soft = case.network(case.inputs).log_softmax(1), case.label_logits.log_softmax(1)
    reverse_cross_entropy = -(log_p.exp() * log_soft).sum(1)
    summed = losses.reverse_kl(log_p, log_soft) + losses.entropy(log_p)
    torch.testing.assert_close(summed, reverse_cross_entropy, rtol=1e-12, atol=1e-12)


def test_the_label_gradient_is_that_of_the_similarity_to_the_clean_gradients() -> None:
    """The paper's reading: labels move so that a sample's gradient agrees with the mean clean gradient at θ̂."""
    case = problem()
    network = case.network
    parameters = list(network.parameters())

    def flat(gradient: Sequence[Tensor]) -> Tensor:
        return torch.cat([part.flatten() for part in gradient])

    inner = reverse_kl(network(case.inputs), case.label_logits)
    step = torch.autograd.grad(inner, parameters)
    ahead = {name: (p - LOOK_AHEAD * g).detach() for (name, p), g in zip(network.named_parameters(), step, strict=True)}
    clean = []
    for x, y in zip(case.clean_inputs, case.clean_label, strict=True):
        weights = {name: weight.clone().requires_grad_() for name, weight in ahead.items()}
        loss = F.cross_entropy(functional_call(network, weights, (x[None],)), y[None])
        clean.append(flat(torch.autograd.grad(loss, list(weights.values()))))
    rows = []
    for x, u in zip(case.inputs, case.label_logits, strict=True):
        leaf = u.clone().requires_grad_()
        loss = reverse_kl(network(x[None]), leaf[None])
        own = flat(torch.autograd.grad(loss, parameters, create_graph=True))
        similarity = torch.stack([own @ other for other in clean]).mean()
        (slope,) = torch.autograd.grad(similarity, leaf)
        rows.append(-LOOK_AHEAD / len(case.inputs) * slope)
    assert relative_error(label_gradient(case), torch.stack(rows)) < 1e-8


class OneWeight(nn.Module):
    """Two classes, logits (θx, 0), θ = 0."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.theta * x, torch.zeros_like(x)], 1)


@pytest.mark.parametrize("mode", ["exact", "double-backward"])
def test_a_case_worked_out_by_hand(mode: Any) -> None:
    network, one = OneWeight(), torch.ones(1, dtype=torch.float64)
    label_logits = torch.tensor([[0.0, 2.0]], dtype=torch.float64)
    inner = reverse_kl(network(one), label_logits)
    assert inner.item() == pytest.approx(0.4337808304830273, rel=1e-12)
    assert torch.autograd.grad(inner, network.theta)[0].item() == pytest.approx(0.5, rel=1e-12)
    engine = Bilevel(network, mode=mode)
    done = engine.forward(one)
    (ahead,) = engine.look_ahead(done, lambda z: reverse_kl(z, label_logits), 0.5)
    assert ahead.item() == pytest.approx(-0.25, rel=1e-12)
    (g,), clean_loss = engine.clean_gradient([ahead], one, lambda z: F.cross_entropy(z, torch.tensor([0])))
    assert clean_loss.item() == pytest.approx(0.8259394198788435, rel=1e-12)
    assert g is not None
    assert g.item() == pytest.approx(-0.5621765008857981, rel=1e-12)
    meta = BilevelOutput(done.logits, engine.tangent(done, [g]), clean_loss)
    gradient = 0.5 * tangent_of_probabilities(meta)
    assert gradient.tolist() == [pytest.approx([-0.07027206261072476, 0.07027206261072476], rel=1e-12)]


@pytest.mark.parametrize("name", NETS)
def test_the_rows_of_the_label_gradient_sum_to_zero(name: str) -> None:
    gradient = label_gradient(problem(name))
    assert gradient.sum(1).abs().max() < 1e-14 * max(1, gradient.abs().max().item())


@pytest.mark.parametrize("name", NETS)
def test_a_shift_of_the_label_logits_changes_nothing(name: str) -> None:
    case = problem(name)
    shift = torch.linspace(-5, 5, len(case.inputs), dtype=torch.float64).unsqueeze(1)
    shifted = case._replace(label_logits=case.label_logits + shift)
    assert relative_error(label_gradient(shifted), label_gradient(case)) < 1e-10


def test_at_a_stationary_point_of_the_clean_loss_labels_stay() -> None:
    """A network that knows nothing, labels that say nothing, and clean samples that each carry every class once."""
    network = nn.Linear(5, CLASSES).double()
    nn.init.zeros_(network.weight)
    nn.init.zeros_(network.bias)
    some = torch.randn(3, 5, dtype=torch.float64)
    case = Problem(
        network,
        torch.randn(6, 5, dtype=torch.float64),
        torch.zeros(6, CLASSES, dtype=torch.float64),
        some.repeat_interleave(CLASSES, 0),
        torch.arange(CLASSES).repeat(3),
    )
    assert label_gradient(case).abs().max() < 1e-16
    assert label_gradient(case, mode="difference").abs().max() < 1e-16
    # and the same network with clean samples of one class does move them
    assert label_gradient(case._replace(clean_label=torch.zeros(12, dtype=torch.long))).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["tanh", "the paper's"])
def test_a_short_look_ahead_tends_to_none_at_all(name: str) -> None:
    """G/α → (1/N)·D_g p with g the clean gradient at θ itself, and the error falls with α."""
    case = problem(name)
    limit = tangent_of_probabilities(engine_meta(case, reverse_kl, case.label_logits, look_ahead=0.0))
    limit = limit / len(case.inputs)
    errors = [relative_error(label_gradient(case, alpha) / alpha, limit) for alpha in (1e-6, 1e-7, 1e-8)]
    assert errors[-1] < 1e-4
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("name", ["tanh", "smooth convolutions", "the paper's"])
def test_permuting_the_batch_permutes_the_rows(name: str) -> None:
    case = problem(name)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    permuted = case._replace(inputs=case.inputs[order], label_logits=case.label_logits[order])
    assert relative_error(label_gradient(permuted), label_gradient(case)[order]) < 1e-10


def test_a_sample_seen_twice_gets_the_same_row_twice() -> None:
    case = problem()
    twice = case._replace(
        inputs=torch.cat([case.inputs, case.inputs[:1]]),
        label_logits=torch.cat([case.label_logits, case.label_logits[:1]]),
    )
    gradient = label_gradient(twice)
    torch.testing.assert_close(gradient[0], gradient[-1], rtol=1e-12, atol=1e-15)


def test_a_start_of_ten_times_one_hot_does_not_shrink_the_label_gradient() -> None:
    """Why the reverse divergence: a saturated label multiplies the other one's gradient by its softmax slope."""
    case = problem()
    saturated = case._replace(label_logits=10 * F.one_hot(case.label_logits.argmax(1), CLASSES).double())
    reverse = label_gradient(saturated, 1e-6)
    forward = naive_gradient(saturated, lambda z, u: forward_kl(z, u.softmax(1)), saturated.label_logits, 1e-6)
    assert forward.norm() < 0.01 * reverse.norm()
    soft = saturated.label_logits.softmax(1).max().item()
    assert soft * (1 - soft) == pytest.approx((CLASSES - 1) * math.exp(-10), rel=1e-3)

"""MSLG as published: its label gradient, a second version of the whole step, the paper's settings."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mslg.bilevel import Bilevel
from mslg.bilevel.label_table import LabelTable
from mslg.data.batch import Batch
from mslg.data.splits import Splits
from mslg.methods.cross_entropy import CrossEntropy
from mslg.methods.mslg.method import MSLG, mslg_step
from mslg.methods.mslg.paper import paper_settings
from mslg.methods.mslg.step import label_step
from mslg.training.method import Task
from tests.support import toy
from tests.support.method_problems import Problem, accuracy, check_resume, check_step, problem
from tests.support.method_problems import run as train_all

NETWORKS = [toy.network, toy.normalised_network]
ALPHA = 0.5
PUBLISHED: dict[str, Any] = {"prior": "given", "loss": "reverse-kl", "entropy_weight": 1.0, "label_rate": 1.5}


def build(**settings: Any) -> Problem:
    task, data = problem()
    return MSLG(task, **{**PUBLISHED, **settings}), data


def learning(network: Callable[[], nn.Module] = toy.network, **settings: Any) -> MSLG:
    """After warm-up, with some label logits in double precision."""
    own = {"look_ahead": ALPHA, "label_rate": 1.0, "start": 0.0}
    method = MSLG(toy.task(network), **{**PUBLISHED, **own, **settings})
    method.table.displacement.rows = toy.label_logits()
    method.train()
    toy.go_to(method, 11)
    return method


def slow_divergence(logits: Tensor, label_logits: Tensor, loss: str) -> Tensor:
    """Mean over the batch of the classification loss, entry by entry."""
    total = torch.zeros((), dtype=torch.float64)
    for log_p, log_soft in zip(logits.log_softmax(1), label_logits.log_softmax(1), strict=True):
        for a, b in zip(log_p, log_soft, strict=True):
            total = total + (a.exp() * (a - b) if loss == "reverse-kl" else b.exp() * (b - a))
    return total / len(logits)


def slow_entropy(logits: Tensor) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for row in logits.log_softmax(1):
        for a in row:
            total = total - a.exp() * a
    return total / len(logits)


def clean_loss_ahead(
    network: nn.Module,
    label_logits: Tensor,
    loss: str = "reverse-kl",
    alpha: float = ALPHA,
    *,
    create_graph: bool = False,
) -> Tensor:
    """The clean loss after one step of the classification loss, as a function of the label logits."""
    noisy, clean = toy.noisy_batch(), toy.clean_batch()
    parameters = list(network.parameters())
    inner = slow_divergence(toy.at_weights(network, parameters, noisy.inputs), label_logits, loss)
    gradient = torch.autograd.grad(inner, parameters, create_graph=create_graph)
    ahead = [p - alpha * g for p, g in zip(parameters, gradient, strict=True)]
    return F.cross_entropy(toy.at_weights(network, ahead, clean.inputs), clean.label)


def label_gradient(network: nn.Module, label_logits: Tensor, loss: str = "reverse-kl", alpha: float = ALPHA) -> Tensor:
    leaf = label_logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(clean_loss_ahead(network, leaf, loss, alpha, create_graph=True), leaf)
    return gradient


@pytest.mark.parametrize("mode", ["exact", "double-backward"])
@pytest.mark.parametrize("loss", ["reverse-kl", "forward-kl"])
@pytest.mark.parametrize("network", NETWORKS)
def test_labels_move_against_the_gradient_of_the_clean_loss(
    network: Callable[[], nn.Module], loss: Any, mode: Any
) -> None:
    """With label_rate = α·β/N and β = 1 a step adds exactly the gradient, by autograd and by differences."""
    method = learning(network, loss=loss, mode=mode, label_rate=ALPHA / 4)
    before = toy.label_logits()
    twice = label_gradient(method.network, before, loss)
    (slow,) = toy.differences(lambda: clean_loss_ahead(method.network, before, loss).detach(), [before])
    if network is toy.network and loss == "reverse-kl":
        assert float(twice.abs().max()) == pytest.approx(0.013558264555513231, rel=1e-6)  # worked out in numpy
    if network is toy.network and loss == "forward-kl":
        assert float(twice.abs().max()) == pytest.approx(0.014960603433866735, rel=1e-6)
    method.step(toy.noisy_batch(), toy.endless(toy.clean_batch()))
    moved = method.table.displacement.rows - before
    assert torch.allclose(moved, -twice, rtol=1e-6, atol=1e-12)
    assert torch.allclose(moved, -slow, rtol=1e-5, atol=1e-9)
    assert torch.allclose(moved.sum(1), torch.zeros(4, dtype=torch.float64), atol=1e-12)


class OneWeight(nn.Module):
    """Two classes, logits (θx, 0), θ = 0."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Linear(1, 1, bias=False).double()
        self.theta.weight.data.zero_()

    def forward(self, x: Tensor) -> Tensor:
        first = self.theta(x)
        return torch.cat([first, torch.zeros_like(first)], 1)


def test_the_case_worked_out_by_hand() -> None:
    task = Task(torch.tensor([1]), 2, OneWeight, 10, 1, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    # label logits (0, 2), α = 0.5, β = N = 1
    method = MSLG(task, **{**PUBLISHED, "look_ahead": 0.5, "label_rate": 0.5, "start": 2.0})
    toy.go_to(method, 9)
    one = torch.ones(1, 1, dtype=torch.float64)
    noisy = Batch(torch.tensor([0]), one, torch.tensor([1]))
    scalars = method.step(noisy, toy.endless(Batch(torch.tensor([0]), one, torch.tensor([0])))).scalars
    assert float(scalars["clean/loss"]) == pytest.approx(0.8259394198788435)
    assert method.table.displacement.rows[0].tolist() == pytest.approx([0.07027206261072476, -0.07027206261072476])
    assert float(scalars["labels/step"]) == pytest.approx(2 * 0.07027206261072476)
    u = [0.07027206261072476, 2 - 0.07027206261072476]
    log_soft = [value - math.log(math.exp(u[0]) + math.exp(u[1])) for value in u]
    assert float(scalars["loss"]) == pytest.approx(-(log_soft[0] + log_soft[1]) / 2)  # at the new labels


def reference_run(network: nn.Module, steps: int, loss: str, gamma: float, scale: float) -> tuple[list[Tensor], Tensor]:
    """The published algorithm with the autograd of the whole look-ahead; every loss times `scale`, β = 8, λ = 0.1."""
    label_logits, noisy = toy.label_logits(), toy.noisy_batch()
    for _ in range(steps):
        # A loss times a factor looks ahead that much further.
        label_logits = label_logits - 8 * label_gradient(network, label_logits, loss, ALPHA * scale)
        logits = network(noisy.inputs)
        total = slow_divergence(logits, label_logits, loss) + gamma * slow_entropy(logits)
        gradient = torch.autograd.grad(scale * total, list(network.parameters()))
        for parameter, slope in zip(network.parameters(), gradient, strict=True):
            parameter.data -= 0.1 * slope
    return toy.weights_of(network), label_logits


@pytest.mark.parametrize(
    ("loss", "gamma", "reduction"),
    [("reverse-kl", 1.0, "batch"), ("reverse-kl", 0.3, "element"), ("forward-kl", 1.0, "batch")],
)
@pytest.mark.parametrize("network", NETWORKS)
def test_some_steps_equal_the_published_algorithm(
    network: Callable[[], nn.Module], loss: Any, gamma: float, reduction: Any
) -> None:
    """With the mean over the batch, or over samples and classes: the same α and β, translated."""
    translated = paper_settings(ALPHA, 8, batch_size=4, classes=3, reduction=reduction)
    method = learning(network, **translated, loss=loss, entropy_weight=gamma)
    for _ in range(3):
        method.step(toy.noisy_batch(), toy.endless(toy.clean_batch()))
    scale = 1 / 3 if reduction == "element" else 1.0
    weights, label_logits = reference_run(network().train(), 3, loss, gamma, scale)
    assert toy.close(toy.weights_of(method.network), weights)
    assert toy.close([method.table.displacement.rows], [label_logits])


def test_the_means_over_elements_and_over_the_batch_differ_by_the_number_of_classes() -> None:
    element = paper_settings(0.5, 4000, batch_size=128, classes=10, reduction="element")
    batch = paper_settings(0.5 / 10, 4000, batch_size=128, classes=10)
    assert element == {**batch, "loss_scale": 0.1}
    with pytest.raises(ValueError, match=r"Did you mean 'element'\?"):
        paper_settings(0.5, 4000, batch_size=128, classes=10, reduction="elements")  # type: ignore[arg-type]


def test_the_presets_are_the_papers_and_its_codes() -> None:
    task = Task(torch.zeros(2, dtype=torch.int64), 10, nn.Linear(2, 10), 120, 128)
    published, released = (MSLG.presets[name](task) for name in ("published", "released"))
    assert (published["look_ahead"], published["label_rate"], published["loss_scale"]) == (0.5, 15.625, 1.0)
    assert (released["look_ahead"], released["label_rate"], released["loss_scale"]) == (0.05, 1.5625, 0.1)
    for preset in (published, released):
        method = MSLG(task, **preset)
        assert (method.first_label_epoch, method.table.start, method.entropy_weight) == (44, 10.0, 1.0)
        assert (method.loss, method.prior) == ("reverse-kl", "given")


def test_the_papers_rates_are_translated() -> None:
    task = Task(torch.zeros(2, dtype=torch.int64), 14, nn.Linear(2, 14), 10, 32)
    method = MSLG.from_paper(task, 0.5, 1500, reduction="element", warm_up=1)  # Clothing1M as released
    assert method.label_rate == pytest.approx(1.674, abs=1e-3)
    assert method.look_ahead == pytest.approx(0.5 / 14)
    assert method.loss_scale == pytest.approx(1 / 14)
    assert method.first_label_epoch == 1
    assert (method.prior, method.loss, method.entropy_weight) == ("given", "reverse-kl", 1.0)
    assert MSLG.from_paper(task, 0.1, 100).label_rate == pytest.approx(0.3125)


def test_only_rows_of_the_batch_change_whatever_its_order() -> None:
    batch = toy.noisy_batch()
    tables = []
    for order in ([2, 0], [0, 2]):
        method = learning()
        part = Batch(batch.index[order], batch.inputs[order], batch.label[order])
        method.step(part, toy.endless(toy.clean_batch()))
        tables.append(method.table.displacement.rows)
    unchanged = (tables[0] == toy.label_logits()).all(1)
    assert unchanged.tolist() == [False, True, False, True]
    assert torch.allclose(tables[0], tables[1], atol=1e-12)


def test_a_label_rate_of_zero_leaves_the_labels() -> None:
    method, data = build(label_rate=0.0)
    metrics = train_all(method, data)
    assert not method.table.displacement.rows.any()
    assert metrics[-1]["labels/changed"] == 0
    assert metrics[-1]["labels/step"] == 0


def test_with_the_full_entropy_term_the_loss_is_the_reverse_cross_entropy() -> None:
    method = learning(label_rate=0.0)
    result = method.step(toy.noisy_batch(), toy.endless(toy.clean_batch()))
    total = 0.0
    for log_p, log_soft in zip(result.log_probs.tolist(), toy.label_logits().log_softmax(1).tolist(), strict=True):
        total -= sum(math.exp(a) * b for a, b in zip(log_p, log_soft, strict=True)) / 4
    assert float(result.scalars["loss"]) == pytest.approx(total)


def test_warm_up_is_cross_entropy() -> None:
    method, plain = MSLG(toy.task(), prior="given"), CrossEntropy(toy.task())
    for each in (method, plain):
        each.train()
        toy.go_to(each, 3)
        each.step(toy.noisy_batch(), iter(()))  # needs no clean sample yet
    assert toy.close(toy.weights_of(method.network), toy.weights_of(plain.network), 0.0)
    assert not method.table.displacement.rows.any()


def test_the_step_has_the_methods_defaults() -> None:
    step, whole, method = (inspect.signature(made).parameters for made in (label_step, mslg_step, MSLG))
    for name in ("look_ahead", "label_rate", "loss"):
        assert step[name].default == method[name].default, name
    assert whole["loss_scale"].default == method["loss_scale"].default
    assert step["entropy_weight"].default == MSLG(toy.task()).entropy_used


def test_a_step_in_ones_own_loop_equals_the_methods() -> None:
    method = learning(label_rate=3.0)
    network = toy.network()
    table = LabelTable(toy.noisy_batch().label, 3, start=0.0)
    table.displacement.rows = toy.label_logits()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    published = {"look_ahead": ALPHA, "label_rate": 3.0, "loss": "reverse-kl", "entropy_weight": 1.0}
    mslg_step(Bilevel(network), table, optimizer, toy.noisy_batch(), toy.clean_batch(), **published)  # type: ignore[arg-type]
    method.step(toy.noisy_batch(), toy.endless(toy.clean_batch()))
    assert torch.equal(table.displacement.rows, method.table.displacement.rows)
    assert toy.close(toy.weights_of(network), toy.weights_of(method.network), 0.0)


def without_clean_set() -> Problem:
    task, data = problem(clean=None)
    settings = {**PUBLISHED, "auto_clean": True, "auto_share": 0.1, "warm_up": 3}
    return MSLG(task, **settings), data


def test_without_a_clean_set_the_easiest_samples_of_each_class_stand_in() -> None:
    method, data = without_clean_set()
    train_all(method, data, 3)
    assert method.excluded() is None
    method.set_progress(3, 0.5)
    method.begin_epoch(3, data)
    chosen = method.excluded()
    assert chosen is not None
    method.eval()
    with torch.no_grad():
        losses = -method.predict(torch.as_tensor(np.stack([inputs_of(data, i) for i in range(240)])))
    given = method.task.given
    expected = []
    for c in range(4):
        members = sorted((float(losses[i, c]), i) for i in range(240) if int(given[i]) == c)
        expected += [i for _, i in members[:6]]  # a tenth of 240 samples over 4 classes
    assert chosen.tolist() == sorted(expected)


def inputs_of(data: Splits, index: int) -> np.ndarray:
    (inputs,) = data.train.store.batches([torch.tensor([index])])
    return np.asarray(inputs[0])


def test_samples_that_stand_in_are_not_trained_on() -> None:
    method, data = without_clean_set()
    train_all(method, data)
    chosen = method.excluded()
    assert chosen is not None
    assert not method.table.displacement.rows[chosen].any()
    others = torch.ones(240, dtype=torch.bool)
    others[chosen] = False
    assert method.table.displacement.rows[others].any(1).all()


@pytest.mark.parametrize("stop", [5, 25, 35])
def test_an_interrupted_run_without_a_clean_set_ends_the_same(stop: int) -> None:
    check_resume(without_clean_set, stop)


@pytest.mark.parametrize("stop", [3, 25])
@pytest.mark.parametrize(
    "settings",
    [{}, {"table_dtype": "float16", "loss": "forward-kl"}, {"clean_every": 3}, {"clean_every": 3, "mode": "head"}],
)
def test_an_interrupted_run_ends_the_same(stop: int, settings: dict[str, Any]) -> None:
    check_resume(lambda: build(**settings), stop)


@pytest.mark.parametrize("epoch", [0, 5])
@pytest.mark.parametrize(
    "settings", [{}, {"loss": "forward-kl"}, {"look_ahead": 0.0}, {"table_dtype": "float16"}, {"clean_every": 2}]
)
def test_a_step_never_waits_for_a_device(epoch: int, settings: dict[str, Any]) -> None:
    check_step(*build(**settings), epoch=epoch)


def test_a_table_in_a_file_equals_the_one_in_memory(tmp_path: Path) -> None:
    (inside, data), (outside, _) = build(), build(table_file=tmp_path / "labels.bin")
    assert train_all(inside, data) == train_all(outside, data)
    index = torch.arange(240)
    assert inside.table.displacement.rows.any()
    assert torch.equal(inside.soft_labels(index), outside.soft_labels(index))


def test_a_table_of_half_precision_stays_close() -> None:
    (full, data), (half, _) = build(), build(table_dtype="float16")
    train_all(full, data)
    train_all(half, data)
    assert half.table.displacement.rows.dtype == torch.float16
    index = torch.arange(240)
    assert half.soft_labels(index).dtype == torch.float32
    assert torch.allclose(full.table.logits(index), half.table.logits(index), atol=0.05)


def test_it_learns() -> None:
    method, data = build()
    metrics = train_all(method, data)
    assert accuracy(method) > 0.85
    assert {"train/loss", "clean/loss", "labels/step", "labels/changed"} <= set(metrics[-1])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"warm_up": 44},
            "never reaches MSLG's label learning, which starts after 44; train for at least 45 epochs or start it",
        ),
        ({"label_rate": -1.0}, "label_rate is -1.0; it must be 0 or more"),
        ({"clean_every": 0}, "clean_every is 0; it must be a whole number of steps, 1 or more"),
        ({"loss": "reverse_kl"}, "Did you mean 'reverse-kl'"),
        ({"table_dtype": "float8"}, "unknown table_dtype 'float8'"),
    ],
)
def test_a_mistake_is_told_with_a_way_out(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MSLG(toy.task(), **settings)


def test_a_run_of_one_epoch_never_reaches_the_labels() -> None:
    with pytest.raises(ValueError, match="a run of 1 epoch never reaches MSLG's label learning, which starts after 1"):
        MSLG(replace(toy.task(), epochs=1))

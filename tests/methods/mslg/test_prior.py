"""MSLG's priors: the posterior of the transition matrix, the contest of the warm-up, and who wins it."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mslg.bilevel.label_table import LabelTable
from mslg.data.batch import call
from mslg.data.make_splits import make_splits
from mslg.data.source import make_source
from mslg.data.splits import Splits
from mslg.methods.mslg.contest import calibrated_loss
from mslg.methods.mslg.method import MSLG, log_posterior, mslg_step
from mslg.noise.transition_matrix import count, smooth
from mslg.training.loop import Position, train
from mslg.training.losses import forward_cross_entropy
from mslg.training.method import Task
from mslg.training.prediction_history import PredictionHistory
from tests.support import toy
from tests.support.blobs import blobs, same_state
from tests.support.method_problems import check_resume, plain_network, problem, sgd
from tests.support.method_problems import run as train_all

NETWORKS = [toy.network, toy.normalised_network]
T3 = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.3, 0.3, 0.4]], dtype=torch.float64)
PAIR = 0.3 * torch.eye(4) + 0.7 * torch.eye(4).roll(1, 1)  # most labels are the next class's
UNIFORM = torch.full((4, 4), 0.25)  # given labels say nothing


def noise(transition: Tensor, true: Tensor, seed: int) -> Tensor:
    return torch.multinomial(transition[true], 1, generator=torch.Generator().manual_seed(seed)).squeeze(1)


def structured(
    transition: Tensor, *, told: Tensor | None = None, pairs: bool = True, clean: int = 80, **settings: Any
) -> tuple[MSLG, Splits]:
    """Blobs with labels drawn from a matrix. Clean samples have both labels, drawn from the same one or another."""
    data = blobs(clean=clean)
    noisy = make_source(data.x, noise(transition, torch.as_tensor(data.true), 1))
    verified = torch.as_tensor(data.clean_y)
    both = (noise(transition if told is None else told, verified, 2), verified) if pairs else None
    splits = make_splits(noisy, make_source(data.clean_x, data.clean_y), batch_size=32, clean_batch_size=16, seed=3)
    task = Task(noisy.label, 4, plain_network, 8, 32, optimizer=sgd, pairs=both, seed=3)
    return MSLG(task, **{"warm_up": 4, **settings}), splits


def with_matrix(network: Callable[[], nn.Module] = toy.network, **settings: Any) -> MSLG:
    """After warm-up, the matrix and some displacements in double precision."""
    pairs = (torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2]))
    method = MSLG(toy.task(network, pairs=pairs), **{"prior": "matrix", "look_ahead": 0.5, **settings})
    method.log_columns = T3.log().t()
    method.table.displacement.rows = toy.label_logits()
    method.train()
    toy.go_to(method, 11)
    return method


def slow_posterior(logits: Tensor, label: Tensor, displacement: Tensor) -> Tensor:
    """T[k, given]·p_k·exp(δ_k), divided by its sum, entry by entry."""
    rows = []
    for z, given, moved in zip(logits.tolist(), label.tolist(), displacement.tolist(), strict=True):
        p = [math.exp(a) / sum(math.exp(b) for b in z) for a in z]
        mass = [float(T3[k, given]) * p[k] * math.exp(moved[k]) for k in range(3)]
        rows.append([m / sum(mass) for m in mass])
    return torch.tensor(rows, dtype=torch.float64)


def slow_loss(logits: Tensor, soft: Tensor) -> Tensor:
    """Mean over the batch of KL(soft label ‖ prediction), the label held fixed."""
    total = torch.zeros((), dtype=torch.float64)
    for log_p, row in zip(logits.log_softmax(1), soft, strict=True):
        for a, b in zip(log_p, row, strict=True):
            total = total + b * (b.log() - a)
    return total / len(logits)


def probability_tangent_twice_backward(network: nn.Module, g: tuple[Tensor, ...]) -> Tensor:
    """D_g p: the derivative with respect to v of ⟨g, gradient of ⟨v, p⟩⟩."""
    parameters = list(network.parameters())
    probs = toy.at_weights(network, parameters, toy.noisy_batch().inputs).softmax(1)
    v = torch.zeros_like(probs, requires_grad=True)
    gradient = torch.autograd.grad(probs, parameters, v, create_graph=True)
    (tangent,) = torch.autograd.grad(sum((a * b).sum() for a, b in zip(gradient, g, strict=True)), v)  # type: ignore[arg-type]
    return tangent


def clean_gradient_ahead(network: nn.Module, displacement: Tensor, look_ahead: float) -> tuple[Tensor, ...]:
    noisy, clean = toy.noisy_batch(), toy.clean_batch()
    parameters = list(network.parameters())
    logits = toy.at_weights(network, parameters, noisy.inputs)
    inner = slow_loss(logits, slow_posterior(logits.detach(), noisy.label, displacement))
    ahead = [p - look_ahead * g for p, g in zip(parameters, torch.autograd.grad(inner, parameters), strict=True)]
    ahead = [p.detach().requires_grad_() for p in ahead]
    return torch.autograd.grad(F.cross_entropy(toy.at_weights(network, ahead, clean.inputs), clean.label), ahead)


def reference_run(network: nn.Module, steps: int, rate: float, gamma: float, scale: float) -> tuple[Any, Tensor]:
    displacement, noisy = toy.label_logits(), toy.noisy_batch()
    for _ in range(steps):
        g = clean_gradient_ahead(network, displacement, 0.5)
        displacement = displacement - rate * probability_tangent_twice_backward(network, g)
        logits = network(noisy.inputs)
        loss = slow_loss(logits, slow_posterior(logits.detach(), noisy.label, displacement))
        loss = loss - gamma * (logits.softmax(1) * logits.log_softmax(1)).sum() / len(logits)
        for parameter, slope in zip(
            network.parameters(), torch.autograd.grad(scale * loss, list(network.parameters())), strict=True
        ):
            parameter.data -= 0.1 * slope
    return toy.weights_of(network), displacement


@pytest.mark.parametrize(("gamma", "scale"), [(0.0, 1.0), (0.4, 0.3)])
@pytest.mark.parametrize("network", NETWORKS)
def test_some_steps_equal_the_slow_version(network: Callable[[], nn.Module], gamma: float, scale: float) -> None:
    method = with_matrix(network, label_rate=2.0, entropy_weight=gamma, loss_scale=scale)
    for _ in range(3):
        method.step(toy.noisy_batch(), toy.endless(toy.clean_batch()))
    weights, displacement = reference_run(network().train(), 3, 2.0, gamma, scale)
    assert toy.close(toy.weights_of(method.network), weights)
    assert toy.close([method.table.displacement.rows], [displacement])


@pytest.mark.parametrize("mode", ["exact", "double-backward"])
@pytest.mark.parametrize("network", NETWORKS)
def test_labels_move_along_the_tangent_of_the_predictions(network: Callable[[], nn.Module], mode: Any) -> None:
    method = with_matrix(network, label_rate=0.7, mode=mode)
    g = clean_gradient_ahead(method.network, toy.label_logits(), 0.5)
    twice = probability_tangent_twice_backward(method.network, g)
    near = []
    for sign in (1, -1):
        moved = [p + sign * 1e-6 * slope for p, slope in zip(method.network.parameters(), g, strict=True)]
        near.append(toy.at_weights(method.network, moved, toy.noisy_batch().inputs).softmax(1).detach())
    result = method.step(toy.noisy_batch(), toy.endless(toy.clean_batch()))
    moved_by = method.table.displacement.rows - toy.label_logits()
    assert float(twice.abs().max()) > 0.01
    assert torch.allclose(moved_by, -0.7 * twice, rtol=1e-6, atol=1e-12)
    assert torch.allclose(moved_by, -0.7 * (near[0] - near[1]) / 2e-6, rtol=1e-5, atol=1e-8)
    assert float(result.scalars["labels/step"]) == pytest.approx(0.7 * float(twice.abs().sum()) / 4)


def test_the_posterior_equals_the_slow_one() -> None:
    logits, label = toy.network()(toy.noisy_batch().inputs).detach(), toy.noisy_batch().label
    found = log_posterior(logits.log_softmax(1), label, T3.log().t(), toy.label_logits()).exp()
    assert torch.allclose(found, slow_posterior(logits, label, toy.label_logits()), atol=1e-14)


@pytest.mark.parametrize("network", NETWORKS)
def test_labels_that_are_not_learned_make_it_forward_correction(network: Callable[[], nn.Module]) -> None:
    """By a step that does not look at clean samples, and by one that does; the gradient is the step over the rate."""
    expected = network().train()
    batch = toy.noisy_batch()
    loss = forward_cross_entropy(expected(batch.inputs).log_softmax(1), batch.label, T3).mean()
    gradient = torch.autograd.grad(loss, list(expected.parameters()))
    method = with_matrix(network, label_rate=0.0)
    method.table.displacement.rows.zero_()
    before = toy.weights_of(method.network)
    method.step(batch, iter(()))
    by_method = [(a - b) / 0.1 for a, b in zip(before, toy.weights_of(method.network), strict=True)]
    own = with_matrix(network)
    table = LabelTable(batch.label, 3, dtype=torch.float64)
    mslg_step(
        own.engine, table, own.optimizer, batch, toy.clean_batch(), log_columns=own.log_columns, label_rate=0.0,
        entropy_weight=0.0,
    )  # fmt: skip
    by_step = [(a - b) / 0.1 for a, b in zip(before, toy.weights_of(own.network), strict=True)]
    for found in (by_method, by_step):
        assert all(torch.allclose(a, b, rtol=0, atol=1e-13) for a, b in zip(found, gradient, strict=True))


@pytest.mark.parametrize("pairs", [True, False])
def test_in_the_warm_up_both_networks_are_trained_as_if_alone(pairs: bool) -> None:
    both, data = structured(PAIR, pairs=pairs)
    alone = {prior: structured(PAIR, pairs=pairs, prior=prior)[0] for prior in ("given", "matrix")}
    for method in (both, *alone.values()):
        train_all(method, data, 4)
    assert both.rival is not None
    assert same_state(both.network.state_dict(), alone["given"].network.state_dict())
    assert same_state(both.rival.state_dict(), alone["matrix"].network.state_dict())
    assert same_state(both.log_columns, alone["matrix"].log_columns)
    assert not same_state(both.network.state_dict(), both.rival.state_dict())
    assert not both.table.displacement.rows.any()


def outcome(method: MSLG, data: Splits) -> str:
    train_all(method, data, method.first_label_epoch + 1)
    assert method.rival is None
    return method.settled


@pytest.mark.parametrize("pairs", [True, False])
def test_the_matrix_wins_where_most_labels_are_anothers(pairs: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="mslg")
    method, data = structured(PAIR, pairs=pairs)
    assert method.settled == "choose"
    train_all(method, data)
    assert method.settled == "matrix"
    assert "MSLG: the labels start from the posterior of the transition matrix" in caplog.text
    test = blobs()
    method.eval()
    predicted = method.predict(torch.as_tensor(test.test_x)).argmax(1).numpy()
    assert (predicted == test.test_y).mean() > 0.85
    true = torch.as_tensor(test.true)
    assert float((method.soft_labels(torch.arange(240)).argmax(1) == true).float().mean()) > 0.85


@pytest.mark.parametrize(
    ("made", "told"),
    [(torch.eye(4), None), (torch.eye(4), UNIFORM), (0.7 * torch.eye(4) + 0.075, UNIFORM), (torch.eye(4), PAIR)],
)
def test_a_matrix_that_says_nothing_or_the_wrong_thing_loses(
    made: Tensor, told: Tensor | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="mslg")
    assert outcome(*structured(made, told=told)) == "given"
    assert "MSLG: the labels start from the given labels" in caplog.text


def test_the_winner_goes_on_with_its_own_optimizer() -> None:
    method, data = structured(PAIR)
    train_all(method, data, 4)
    rival, optimizer = method.rival, method.rival_optimizer
    method.begin_epoch(4, data)
    assert method.network is rival
    assert method.optimizer is optimizer
    assert method.deployed() is rival
    assert list(method._optimizers) == ["network"]
    assert not any(name.startswith("rival") for name in method.state_dict())
    method.set_progress(4, 0.5)
    before = deepcopy(method.network.state_dict())
    method.step(next(data.batches(4)), data.clean_batches(4))
    assert not same_state(method.network.state_dict(), before)


def test_without_doubly_labelled_samples_the_matrix_is_estimated_half_way() -> None:
    method, data = structured(PAIR, pairs=False, warm_up=5)
    assert method.first_matrix_epoch == 2
    start = deepcopy(method.rival)
    assert start is not None
    train_all(method, data, 2)
    assert method.rival is not None
    assert same_state(method.rival.state_dict(), start.state_dict()), "not trained yet"
    assert not method.log_columns.any()
    method.begin_epoch(2, data)
    expected = torch.zeros(4, 4, dtype=torch.float64)
    method.network.eval()
    for batch in data.in_order(data.clean):
        probs = call(method.network, batch.inputs).double().softmax(1)
    for row, label in zip(probs.tolist(), batch.label.tolist(), strict=True):
        for k in range(4):
            expected[label, k] += row[k]
    expected /= expected.sum(1, keepdim=True)
    assert torch.allclose(method.log_columns.double().t().exp(), expected, atol=1e-5)
    assert same_state(method.rival.state_dict(), method.network.state_dict())
    assert same_state(method.rival_optimizer.state_dict(), method.optimizer.state_dict())
    assert method.rival_optimizer is not method.optimizer
    assert method.rival_optimizer.state[next(method.rival.parameters())], "its momentum came along"


def test_with_doubly_labelled_samples_the_matrix_is_counted_before_training() -> None:
    method, _ = structured(PAIR)
    assert method.task.pairs is not None
    assert method.first_matrix_epoch == 0
    expected = smooth(count(*method.task.pairs, 4), None).clamp_min(1e-6)
    assert torch.allclose(method.log_columns.double().t().exp(), expected, atol=1e-6)


def test_a_warm_up_too_short_for_a_contest_leaves_the_given_labels() -> None:
    assert outcome(*structured(PAIR, pairs=False, warm_up=1)) == "given"
    assert outcome(*structured(PAIR, warm_up=0)) == "given"
    assert outcome(*structured(PAIR, warm_up=1)) == "matrix"


@pytest.mark.parametrize("stop", [10, 18, 29, 40])  # seven an epoch: twice before the decision, right after it, later
@pytest.mark.parametrize("settings", [{}, {"told": UNIFORM}, {"pairs": False}, {"table_dtype": "float16"}])
def test_an_interrupted_run_ends_the_same(stop: int, settings: dict[str, Any]) -> None:
    check_resume(lambda: structured(PAIR if "told" not in settings else torch.eye(4), **settings), stop)


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5])
def test_a_run_interrupted_between_epochs_ends_the_same(stop: int, pairs: bool) -> None:
    """After the second epoch the matrix is estimated (without pairs), after the fourth the decision is made."""
    whole, data = structured(PAIR, pairs=pairs)
    expected = train_all(whole, data)
    first, data = structured(PAIR, pairs=pairs)
    position = Position(PredictionHistory(first.task.given, 4))
    for record in train(first, data, epochs=8, position=position):
        if record.epoch + 1 == stop:
            break
    saved = deepcopy({"method": first.state_dict(), "position": position.state_dict()})
    resumed, data = structured(PAIR, pairs=pairs)
    resumed.load_state_dict(saved["method"])
    position.load_state_dict(saved["position"])
    assert [r.metrics for r in train(resumed, data, epochs=8, position=position)] == expected[stop:]
    assert same_state(resumed.state_dict(), whole.state_dict())
    assert whole.settled == resumed.settled == "matrix"


def test_without_a_clean_set_labels_start_from_the_given_ones() -> None:
    task, _ = problem(clean=None)
    method = MSLG(task, auto_clean=True)
    assert (method.prior, method.settled, method.rival) == ("given", "given", None)
    with pytest.raises(ValueError, match=r'auto_clean has no clean samples to count a matrix on; .* use "given"'):
        MSLG(task, auto_clean=True, prior="matrix")


@pytest.mark.parametrize("prior", ["choose", "matrix"])
def test_clean_samples_that_are_missing_are_asked_for(prior: Any) -> None:
    task, data = problem(clean=None)
    with pytest.raises(
        ValueError, match=f'with the prior "{prior}" needs clean samples and there are none; pass clean='
    ):
        train_all(MSLG(task, prior=prior), data)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"prior": "matrx"}, r"unknown prior 'matrx'\. Did you mean 'matrix'"),
        ({"prior": "matrix", "warm_up": 0}, "needs a warm_up above 0, or clean samples with given and verified labels"),
    ],
)
def test_a_mistake_is_told_with_a_way_out(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MSLG(toy.task(), **settings)


@pytest.mark.parametrize("prior", ["choose", "given", "matrix"])
def test_soft_labels_are_distributions_at_any_time(prior: Any) -> None:
    method, data = structured(PAIR, prior=prior)
    index = torch.arange(240)
    for epochs in (0, 2, 8):
        train_all(method, data, epochs) if epochs else None
        soft = method.soft_labels(index)
        assert soft.shape == (240, 4)
        assert (soft >= 0).all()
        assert torch.allclose(soft.sum(1), torch.ones(240), atol=1e-5)


def test_the_soft_label_is_the_posterior_at_the_last_visit() -> None:
    method, data = structured(PAIR, prior="matrix")
    train_all(method, data, 3)
    history = Position(PredictionHistory(method.task.given, 4))
    for _ in train(method, data, epochs=4, position=history):
        pass
    index = torch.arange(240)
    probs = method.recent.rows.float().exp()
    expected = torch.stack(
        [method.log_columns[int(j)].exp() * p for j, p in zip(method.task.given, probs, strict=True)]
    )  # no displacement before the label learning
    assert torch.allclose(method.soft_labels(index), expected / expected.sum(1, keepdim=True), atol=1e-5)


def slow_calibrated_loss(logits: Tensor, label: Tensor) -> float:
    best = math.inf
    for power in range(81):
        factor = 10 ** (-1 + power / 40)
        total = 0.0
        for row, given in zip(logits.tolist(), label.tolist(), strict=True):
            total += math.log(sum(math.exp(factor * (z - row[given])) for z in row))
        best = min(best, total / len(label))
    return best


def test_the_calibrated_loss_is_the_lowest_of_all_temperatures() -> None:
    random = np.random.default_rng(0)
    label = torch.as_tensor(random.integers(0, 4, 50))
    logits = torch.as_tensor(random.normal(size=(50, 4))) + 0.8 * F.one_hot(label, 4)
    found = calibrated_loss(logits, label)
    assert found == pytest.approx(slow_calibrated_loss(logits, label), rel=1e-12)
    assert found < float(F.cross_entropy(3 * logits, label))
    for power in (-20, -3, 5, 16):  # a network's being humble or bold says nothing
        assert calibrated_loss(logits * 10 ** (power / 40), label) == pytest.approx(found, rel=1e-9)
    assert calibrated_loss(logits * 1.017, label) == pytest.approx(found, rel=1e-3)
    assert calibrated_loss(torch.zeros(50, 4), label) == pytest.approx(math.log(4))


def test_the_cost_of_a_step() -> None:
    costs = {}
    for prior in ("choose", "given", "matrix"):
        method, _ = structured(PAIR, prior=prior)
        costs[prior] = [method.relative_cost(epoch) for epoch in (0, 3, 4)]
        learning = method.engine.relative_cost(method.look_ahead)
    assert learning > 3
    assert costs == {"choose": [2, 2, learning], "given": [1, 1, learning], "matrix": [1, 1, learning]}
    method, _ = structured(PAIR, pairs=False)
    assert [method.relative_cost(epoch) for epoch in (0, 1, 2, 3)] == [1, 1, 2, 2], "the rival starts half-way"
    method, _ = structured(PAIR, label_rate=0.0)
    assert method.relative_cost(4) == 1

"""Co-teaching."""

from __future__ import annotations

import pytest
import torch

from mslg.data.batch import call
from mslg.methods.co_teaching import CoTeaching, kept_of, smallest
from mslg.methods.cross_entropy import CrossEntropy
from tests.support.blobs import same_state
from tests.support.method_problems import (
    Problem,
    accuracy,
    check_resume,
    check_step,
    no_clean,
    plain_network,
    problem,
    run,
)


def build(**settings: float) -> Problem:
    task, data = problem(clean=None, noise_rate=0.3)
    return CoTeaching(task, **{"ramp": 2, **settings}), data  # type: ignore[arg-type]


def test_each_network_learns_from_what_the_other_finds_easy() -> None:
    first, second = torch.tensor([0.1, 2.0, 0.5, 0.05]), torch.tensor([1.0, 0.2, 0.3, 0.9])
    assert smallest(first, 2).tolist() == [0, 3]
    assert smallest(second, 2).tolist() == [1, 2]
    assert float(first[smallest(second, 2)].mean()) == pytest.approx(1.25)
    assert float(second[smallest(first, 2)].mean()) == pytest.approx(0.95)


def test_the_forget_rate_rises_to_the_noise_rate() -> None:
    task, _ = problem(epochs=20, noise_rate=0.5)
    method = CoTeaching(task, ramp=10)
    expected = [0, 0.0555556, 0.1111111, 0.1666667, 0.2222222, 0.2777778, 0.3333333, 0.3888889, 0.4444444, 0.5]
    assert [method.forgotten(epoch) for epoch in range(10)] == pytest.approx(expected, abs=1e-6)
    assert {method.forgotten(epoch) for epoch in range(10, 20)} == {0.5}
    task, _ = problem(epochs=200, noise_rate=0.2)
    published = CoTeaching(task)
    assert published.ramp_epochs == 10
    # A known wrong version climbs to 0.72 with this rate before it falls back to it.
    assert max(published.forgotten(epoch) for epoch in range(200)) == pytest.approx(0.2)
    slow = CoTeaching(task, exponent=2)
    assert [slow.forgotten(9), slow.forgotten(10)] == pytest.approx([0.04, 0.2])


@pytest.mark.parametrize("ramp", [0, 1])
def test_a_ramp_of_at_most_one_epoch(ramp: int) -> None:
    method, _ = build(ramp=ramp)
    assert isinstance(method, CoTeaching)
    assert [method.forgotten(epoch) for epoch in range(3)] == [0.3 * (1 - ramp), 0.3, 0.3]


@pytest.mark.parametrize(
    ("samples", "forgotten", "kept"), [(10, 0.0, 10), (10, 0.45, 5), (10, 0.9, 1), (5, 0.4, 3), (2, 0.9, 1)]
)
def test_how_many_samples_are_kept(samples: int, forgotten: float, kept: int) -> None:
    assert kept_of(samples, forgotten) == kept


def test_forgetting_nothing_equals_two_independent_runs_to_the_bit() -> None:
    task, data = problem(network=plain_network)
    both = CoTeaching(task, forget_rate=0.0)
    together = run(both, data)
    for place, name in enumerate(("0", "1")):
        task, data = problem(network=plain_network)
        for _ in range(place):
            task.new_network()
        alone = CrossEntropy(task)
        records = run(alone, data)
        assert same_state(alone.network.state_dict(), both.networks.get_submodule(name).state_dict())
        loss = ("train/loss", "second/loss")[place]
        assert [record[loss] for record in together] == [record["train/loss"] for record in records]


def test_the_update_of_a_step() -> None:
    task, data = problem(
        clean=None, network=plain_network, noise_rate=0.4, optimizer=lambda p: torch.optim.SGD(p, lr=0.1)
    )
    method = CoTeaching(task, ramp=0)
    batch = next(iter(data.batches(0)))
    networks = [method.networks[0], method.networks[1]]
    losses = []
    for network in networks:
        log_probs = call(network, batch.inputs).log_softmax(1)
        losses.append([-log_probs[row, label] for row, label in enumerate(batch.label.tolist())])
    expected = []
    for own, network in enumerate(networks):
        other = [float(value.detach()) for value in losses[1 - own]]
        chosen = sorted(range(32), key=lambda row: other[row])[: int(0.6 * 32)]
        total = sum(losses[own][row] for row in chosen) / len(chosen)
        slopes = torch.autograd.grad(total, list(network.parameters()))
        expected.append([p.detach() - 0.1 * slope for p, slope in zip(network.parameters(), slopes, strict=True)])
    method.step(batch, no_clean())
    for network, parameters in zip(networks, expected, strict=True):
        for found, wanted in zip(network.parameters(), parameters, strict=True):
            assert torch.allclose(found, wanted, atol=1e-6)


def test_the_two_networks_differ_from_the_start() -> None:
    method, _ = build()
    assert isinstance(method, CoTeaching)
    assert not torch.equal(method.networks[0][0].weight, method.networks[1][0].weight)  # type: ignore[index]


@pytest.mark.parametrize("ensemble", [False, True])
def test_it_predicts_with_one_network_or_with_both(ensemble: bool) -> None:
    method, data = build(ensemble=ensemble)
    assert isinstance(method, CoTeaching)
    run(method, data)
    assert accuracy(method) > 0.8
    inputs = next(iter(data.batches(0))).inputs
    method.eval()
    first, second = (network(inputs).softmax(1) for network in (method.networks[0], method.networks[1]))
    expected = (first + second) / 2 if ensemble else first
    assert torch.allclose(method.predict(inputs).exp(), expected, atol=1e-6)
    assert torch.allclose(call(method.deployed(), inputs).softmax(1), expected, atol=1e-6)
    method.train()
    check_step(method, data, epoch=5)


def test_a_run_resumes_exactly() -> None:
    check_resume(build, 19)


def test_an_unknown_rate_is_counted_on_samples_with_both_labels() -> None:
    given, verified = torch.tensor([0, 1, 2, 3, 3]), torch.tensor([0, 1, 2, 0, 1])
    task, _ = problem(pairs=(given, verified))
    assert CoTeaching(task, ramp=2).forget_rate == pytest.approx(0.4)
    assert CoTeaching(task, ramp=2, forget_rate=0.1).forget_rate == 0.1
    task.noise_rate = 0.3
    assert CoTeaching(task, ramp=2).forget_rate == 0.3
    task, _ = problem(pairs=(verified, verified))
    assert CoTeaching(task, ramp=2).forget_rate == 0


def test_what_is_missing_or_makes_no_sense_is_refused() -> None:
    task, _ = problem(pairs=(torch.empty(0), torch.empty(0)))
    with pytest.raises(ValueError, match="needs the fraction of wrong labels; pass noise_rate= with the task, or"):
        CoTeaching(task)
    with pytest.raises(ValueError, match=r"forget_rate is 1\.0; it is a fraction"):
        CoTeaching(task, forget_rate=1.0)
    with pytest.raises(ValueError, match="exponent is 0"):
        CoTeaching(task, forget_rate=0.2, exponent=0)
    with pytest.raises(ValueError, match="a run of 6 epochs never reaches co-teaching's full forget rate"):
        CoTeaching(task, forget_rate=0.2, ramp=10)

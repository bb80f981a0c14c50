"""Generalized cross entropy, plain and truncated."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from mslg.methods.cross_entropy import CrossEntropy
from mslg.methods.generalized_ce import GeneralizedCE, TruncatedGCE, loss_at
from mslg.training.loop import train
from tests.support.blobs import same_state
from tests.support.method_problems import (
    Problem,
    accuracy,
    check_resume,
    check_step,
    example,
    identity_task,
    no_clean,
    problem,
    run,
)


def truncated(clean: int | None = 24, **settings: float) -> Problem:
    task, data = problem(clean=clean)
    return TruncatedGCE(task, **{"first_prune": 2, "prune_every": 2, **settings}), data  # type: ignore[arg-type]


@pytest.mark.parametrize(("q", "expected"), [(0.7, 0.8536451493479986), (1.0, 0.6619255177842558)])
def test_the_loss_of_a_step(q: float, expected: float) -> None:
    result = GeneralizedCE(identity_task(), q=q).step(example(), no_clean())
    assert float(result.scalars["loss"]) == pytest.approx(expected)


def test_the_truncated_loss_of_a_step() -> None:
    method = TruncatedGCE(identity_task())
    assert method.limit == pytest.approx(0.5491825618964884)
    method.dropped.rows.copy_(torch.tensor([False, True]))
    result = method.step(example(order=(1, 0)), no_clean())
    assert float(result.scalars["loss"]) == pytest.approx(-0.09375379845419968)
    assert float(result.scalars["kept"]) == 0.5


def test_a_sample_that_was_dropped_has_no_gradient() -> None:
    method = TruncatedGCE(identity_task())
    method.dropped.rows.copy_(torch.tensor([False, True]))
    method.step(example(), no_clean())
    both = method.network.weight.detach().clone()  # type: ignore[union-attr, operator]
    alone = GeneralizedCE(identity_task())
    first = example()
    log_probs = alone.log_probs(first.inputs)
    chosen = log_probs[0, first.label[0]].exp()
    alone.descend(alone.optimizer, (1 - chosen**0.7) / 0.7 / 2)
    assert torch.allclose(both, alone.network.weight)  # type: ignore[arg-type]


def test_with_q_at_zero_it_is_cross_entropy() -> None:
    states = []
    for method_class, settings in ((CrossEntropy, {}), (GeneralizedCE, {"q": 0.0})):
        task, data = problem(epochs=2)
        method = method_class(task, **settings)  # type: ignore[arg-type]
        run(method, data)
        states.append(method.network.state_dict())
    assert same_state(*states)


def test_the_limit_goes_from_all_samples_to_none() -> None:
    assert loss_at(0.5, 0.7) == pytest.approx((1 - 0.5**0.7) / 0.7)
    assert loss_at(1e-300, 0.7) == pytest.approx(1 / 0.7)
    assert loss_at(1.0, 0.7) == 0
    assert loss_at(0.5, 0.0) == pytest.approx(math.log(2))
    for k, share in ((1e-12, 1.0), (1.0, 0.0)):
        method, data = truncated(k=k)
        assert run(method, data)[-1]["train/kept"] == share


def test_samples_are_chosen_by_their_own_loss_whatever_the_order() -> None:
    method, data = truncated()
    assert isinstance(method, TruncatedGCE)
    run(method, data, epochs=3)
    before = method.dropped.rows.clone()
    method.begin_epoch(4, data)
    method.eval().requires_grad_(False)
    for index, label in zip(data.train.index.tolist(), data.train.label.tolist(), strict=True):
        (inputs,) = data.train.store.batches([torch.tensor([index])])
        probability = float(method.predict(inputs).exp()[0, label])
        expected = (1 - probability**0.7) / 0.7 < (1 - 0.5**0.7) / 0.7
        assert bool(method.dropped.rows[index]) != expected
    assert 0 < before.float().mean() < 1
    assert not torch.equal(before, method.dropped.rows)


def test_pruning_starts_and_repeats_as_asked() -> None:
    method, data = truncated(first_prune=2, prune_every=3)
    pruned = []
    method._prune = lambda data: pruned.append(epoch)  # type: ignore[method-assign, operator]
    for epoch in range(6):
        method.begin_epoch(epoch, data)
    assert pruned == [2, 5]
    task, _ = problem(epochs=120)
    published = TruncatedGCE(task)
    assert (published.first_prune_epoch, published.prune_every) == (40, 10)


def test_the_best_network_on_held_out_clean_samples_chooses() -> None:
    method, data = truncated(clean=400, first_prune=4, prune_every=9)
    assert isinstance(method, TruncatedGCE)
    assert data.select is not None
    scores, networks = [], []
    records = train(method, data, epochs=6)
    for _ in itertools.islice(records, 4):
        method.eval()
        with torch.no_grad():
            (batch,) = data.in_order(data.select)
            scores.append(float((method.predict(batch.inputs).argmax(1) == batch.label).double().mean()))
        networks.append({name: tensor.clone() for name, tensor in method.network.state_dict().items()})
        method.train()
    next(records)
    best = scores.index(max(scores))
    assert method.best_accuracy == pytest.approx(max(scores))
    assert same_state(method.best, networks[best])
    present = {name: tensor.clone() for name, tensor in method.network.state_dict().items()}
    method.network.load_state_dict(networks[best])
    method.eval()
    batches = list(data.in_order())
    chosen = torch.cat(
        [method.predict(b.inputs).exp().gather(1, b.label.unsqueeze(1)).squeeze(1) > 0.5 for b in batches]
    )
    assert torch.equal(~method.dropped[torch.cat([b.index for b in batches])], chosen)
    assert not same_state(present, networks[best])


@pytest.mark.parametrize(("clean", "stop"), [(24, 20), (400, 20), (400, 37)])
def test_a_truncated_run_resumes_exactly(clean: int, stop: int) -> None:
    check_resume(lambda: truncated(clean=clean), stop)


def test_it_learns_and_its_steps_stay_on_the_device() -> None:
    task, data = problem(clean=None, epochs=16)
    method = TruncatedGCE(task, first_prune=0.5)  # pruned much earlier, a whole class may be given up
    run(method, data)
    assert 0.1 < method.dropped.rows.float().mean() < 0.5
    assert accuracy(method) > 0.8
    check_step(method, data, epoch=5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"q": 1.5}, "q is 1.5; it must be between 0 .cross entropy. and 1"),
        ({"k": 0.0}, "k is 0.0; it is a probability above 0"),
        ({"prune_every": 0}, "prune_every is 0; it must be above 0"),
        ({"first_prune": 9}, "a run of 6 epochs never reaches the pruning"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], message: str) -> None:
    task, _ = problem()
    with pytest.raises(ValueError, match=message):
        TruncatedGCE(task, **settings)

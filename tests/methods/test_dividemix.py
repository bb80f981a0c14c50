"""DivideMix."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from mslg.data.batch import call
from mslg.methods.dividemix import DivideMix, clean_probabilities, mean_over, mixed, sharpened
from tests.support.method_problems import (
    Problem,
    accuracy,
    check_resume,
    check_step,
    no_clean,
    plain_network,
    problem,
    run,
    sgd,
)


def build(**settings: Any) -> Problem:
    task, data = problem(clean=None)
    return DivideMix(task, **{"warm_up": 2, "ramp": 2, **settings}), data


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_mixture_splits_small_losses_from_large_ones() -> None:
    small, large = 0.2 + 0.1 * drawn(300), 2.0 + 0.3 * drawn(100, seed=1)
    probability = clean_probabilities(torch.cat([small, large]))
    assert (probability[:300] > 0.9).all()
    assert (probability[300:] < 0.1).all()
    same = clean_probabilities(torch.full((8,), 0.7, dtype=torch.float64))
    assert torch.isfinite(same).all()


def test_the_mixture_is_that_of_scikit_learn() -> None:
    mixture = pytest.importorskip("sklearn.mixture")
    losses = torch.cat([0.5 + 0.2 * drawn(300), 2.0 + 0.5 * drawn(200, seed=1)])
    scaled = ((losses - losses.min()) / (losses.max() - losses.min())).reshape(-1, 1).numpy()
    fitted = mixture.GaussianMixture(2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=0).fit(scaled)
    expected = fitted.predict_proba(scaled)[:, fitted.means_.argmin()]
    found = clean_probabilities(losses).numpy()
    assert abs(found - expected).max() < 0.03
    assert ((found >= 0.5) == (expected >= 0.5)).all()


def test_targets_and_losses_with_loops() -> None:
    method, _ = build(mixup_alpha=0)
    assert isinstance(method, DivideMix)
    probs, other, given = drawn(5, 4).softmax(1), drawn(5, 4, seed=1).softmax(1), torch.tensor([0, 1, 2, 3, 0])
    clean = torch.tensor([0.9, 0.5, 0.49, 0.1, 0.7], dtype=torch.float64)
    labelled = (clean >= 0.5).double()
    one_hot = torch.eye(4, dtype=torch.float64)[given]
    target = method.targets(one_hot, probs, (probs + other) / 2, clean, labelled)
    log_probs = drawn(5, 4, seed=2).log_softmax(1)
    cross, square, share = 0.0, 0.0, [0.0] * 4
    for i in range(5):
        w = float(clean[i])
        row = [
            w * (c == int(given[i])) + (1 - w) * float(probs[i, c])
            if w >= 0.5
            else (float(probs[i, c]) + float(other[i, c])) / 2
            for c in range(4)
        ]
        total = sum(value**2 for value in row)
        row = [value**2 / total for value in row]
        assert target[i].tolist() == pytest.approx(row)
        for c in range(4):
            p = math.exp(float(log_probs[i, c]))
            share[c] += p / 5
            if w >= 0.5:
                cross -= row[c] * math.log(p) / 3
            else:
                square += (p - row[c]) ** 2 / 4 / 2
    losses = method.losses(log_probs, target, labelled)
    assert float(losses["labelled"]) == pytest.approx(cross)
    assert float(losses["unlabelled"]) == pytest.approx(square)
    assert float(losses["balance"]) == pytest.approx(sum(math.log(0.25 / part) / 4 for part in share), rel=1e-6)
    assert float(mean_over(drawn(5), torch.zeros(5))) == 0


def test_sharpening_and_mixtures() -> None:
    assert sharpened(torch.tensor([[0.6, 0.4]]), 0.5).tolist() == [pytest.approx([0.36 / 0.52, 0.16 / 0.52])]
    inputs, target = drawn(6, 2), torch.eye(6, dtype=torch.float64)
    torch.manual_seed(0)
    blend, labels = mixed(inputs, target, 4.0)
    assert torch.allclose(blend, labels @ inputs)  # one-hot targets say which inputs were mixed, and how
    assert (labels.diagonal() >= 0.5).all()
    for unmixable in (torch.arange(6), {"ids": torch.arange(6)}):
        assert mixed(unmixable, target, 4.0) == (unmixable, target)
    assert mixed(inputs, target, 0.0) == (inputs, target)


def test_the_other_network_divides_the_data() -> None:
    task, data = problem(clean=None, network=plain_network, optimizer=sgd)
    method = DivideMix(task, warm_up=0, mixup_alpha=0.0, unlabelled_weight=0.0, balance_weight=0.0)
    batch = next(iter(data.batches(0)))
    # The second network finds all labels clean: the first learns them unchanged. The first finds none clean.
    method.clean_probability[batch.index] = torch.tensor([[0.0, 1.0]]).expand(len(batch.index), 2)
    before = [network.state_dict()["0.weight"].clone() for network in method.networks]
    log_probs = call(method.networks[0], batch.inputs).log_softmax(1).detach()
    expected = -sum(float(log_probs[row, label]) for row, label in enumerate(batch.label.tolist())) / len(batch.label)
    scalars = method.step(batch, no_clean()).scalars
    assert float(scalars["loss"]) == pytest.approx(expected, rel=1e-5)
    assert float(scalars["second/loss"]) == 0
    moved = [
        not torch.equal(net.state_dict()["0.weight"], weight)
        for net, weight in zip(method.networks, before, strict=True)
    ]
    assert moved == [True, False]


def test_the_weight_of_unlabelled_samples_rises_after_the_warm_up() -> None:
    method, _ = build(unlabelled_weight=8.0)  # 6 epochs
    assert isinstance(method, DivideMix)
    found = []
    for epoch in range(6):
        method.set_progress(epoch, epoch / 6)
        found.append(method._unlabelled_weight())
    assert found == pytest.approx([0, 0, 0, 4, 8, 8])


def test_it_learns_and_refined_labels_are_more_often_right() -> None:
    method, data = build(unlabelled_weight=1.0)
    index = torch.arange(len(method.task.given))
    soft = method.soft_labels(index)
    assert soft is not None
    assert torch.equal(soft.argmax(1), method.task.given)
    records = run(method, data)
    true = data.source.true_label
    assert true is not None
    soft = method.soft_labels(index)
    assert soft is not None
    assert torch.allclose(soft.sum(1), torch.ones(len(index)), atol=1e-5)
    assert float((soft.argmax(1) == true).double().mean()) > float((method.task.given == true).double().mean()) + 0.15
    assert "labels/clean" not in records[1]
    assert 0.4 < records[-1]["labels/clean"] < 0.9
    assert accuracy(method) > 0.85


def test_a_step_never_waits_and_a_run_resumes_to_the_bit() -> None:
    method, data = build(confidence_weight=1.0)
    check_step(method, data)
    method.begin_epoch(3, data)
    check_step(method, data, epoch=3)
    check_resume(build, stop=20)


def test_errors() -> None:
    task, _ = problem()
    for settings, message in [
        ({"threshold": 1.5}, "threshold is 1.5; it is a probability"),
        ({"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ({"mixup_alpha": -1.0}, "mixup_alpha is -1.0; it must be 0 or more"),
    ]:
        with pytest.raises(ValueError, match=message):
            DivideMix(task, **settings)

"""The decoupled meta label purifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mslg.data.sample_table import SampleTable
from mslg.methods.dmlp import DMLP, FrozenFeatures, LabelPurifier, auxiliary_gradient, label_gradient_factor, pooled
from tests.support.method_problems import Problem, check_resume, check_step, problem, run

SETTINGS: Any = {"ridge": 1e-3, "label_rate": 0.01, "auxiliary_rate": 0.03, "confidence_weight": 0.4}


def build(**settings: Any) -> Problem:
    task, data = problem()
    return DMLP(task, **{"warm_up": 2, **settings}), data


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def clean_loss(logits: Tensor, label: Tensor) -> Tensor:
    target = torch.eye(logits.shape[1], dtype=torch.float64)[label]
    return nn.functional.cross_entropy(logits, label) + (logits - target).pow(2).sum()


def test_the_label_gradient_is_that_of_autograd_through_the_ridge_solve() -> None:
    features, labels, clean = drawn(40, 6), drawn(40, 3, seed=1).softmax(1).requires_grad_(), drawn(9, 6, seed=2)
    verified = torch.arange(9) % 3
    gram = features.T @ features + 0.1 * torch.eye(6, dtype=torch.float64)
    head = torch.linalg.solve(gram, features.T @ labels)
    (expected,) = torch.autograd.grad(clean_loss(clean @ head, verified), labels)
    target = torch.eye(3, dtype=torch.float64)[verified]
    found = features @ label_gradient_factor(torch.linalg.cholesky(gram), features.T @ labels.detach(), clean, target)
    assert float((found - expected).abs().max()) < 1e-10 * float(expected.abs().max())


def test_the_gradient_of_the_auxiliary_classifier_is_that_of_autograd() -> None:
    logits, target = drawn(7, 3).requires_grad_(), drawn(7, 3, seed=1).softmax(1)
    log_probs = logits.log_softmax(1)
    loss = -(target * log_probs).sum() + 0.4 * (log_probs.exp() * log_probs).sum()
    (expected,) = torch.autograd.grad(loss, logits)
    assert torch.allclose(auxiliary_gradient(logits.detach(), target, 0.4), expected, atol=1e-12)


def small(monkeypatch: pytest.MonkeyPatch) -> tuple[FrozenFeatures, SampleTable, Tensor, Tensor]:
    """Features of 50 samples in pieces of a few rows, labels, and clean features with their labels."""
    monkeypatch.setattr("mslg.data.sample_table.ENTRIES", 40)
    table, labels = SampleTable(50, 4), SampleTable(50, 3)
    index = torch.arange(50)
    table[index] = 3 * drawn(50, 4) + 5
    labels[index] = torch.eye(3)[index % 3]
    features = FrozenFeatures(table, index)
    return features, labels, features.standardised(3 * drawn(12, 4, seed=3) + 5), torch.arange(12) % 3


def test_features_are_standardised_and_dead_ones_are_dropped() -> None:
    table, index = SampleTable(50, 3), torch.arange(50)
    rows = 3 * drawn(50, 3) + 5
    rows[:, 1] = 0.3
    table[index] = rows
    found = FrozenFeatures(table, index)[index]
    assert torch.allclose(found.mean(0), torch.tensor([1.0, 0, 0, 0], dtype=torch.float64), atol=1e-6)
    assert torch.allclose(found.var(0, correction=0), torch.tensor([0.0, 1, 0, 1], dtype=torch.float64), atol=1e-6)


def test_label_updates_are_those_of_adam_on_the_labels_of_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels, clean, verified = small(monkeypatch)
    index = torch.arange(50)
    rows = features[index]
    slow = labels[index].double().requires_grad_()
    adam = torch.optim.Adam([slow], 0.01, betas=(0.5, 0.999))
    weight = torch.zeros(5, 3, dtype=torch.float64, requires_grad=True)
    auxiliary = torch.optim.Adam([weight], 0.03, betas=(0.5, 0.999))
    purifier = LabelPurifier(features, labels, clean, verified, **SETTINGS)
    for number in range(4):
        if number == 2:
            slow.data = (rows @ weight.detach()).softmax(1)
            purifier.exchange()
        adam.zero_grad()
        head = torch.linalg.inv(rows.T @ rows + 1e-3 * 50 * torch.eye(5, dtype=torch.float64)) @ rows.T @ slow
        (50 * clean_loss(clean @ head, verified)).backward()
        adam.step()
        auxiliary.zero_grad()
        log_probs = (rows @ weight).log_softmax(1)
        loss = nn.functional.nll_loss(log_probs, slow.argmax(1)) + 0.4 * (log_probs.exp() * log_probs).sum() / 50
        loss.backward()
        auxiliary.step()
        purifier.step()
    assert torch.allclose(labels[index].double(), slow.detach(), atol=1e-5)  # the table is in single precision
    assert torch.allclose(purifier.weight, weight.detach(), atol=1e-6)


def test_purified_labels_are_more_often_right_and_a_new_network_learns_them() -> None:
    method, data = build()
    assert isinstance(method, DMLP)
    index = torch.arange(len(method.task.given))
    first = method.network
    assert torch.equal(method.soft_labels(index).argmax(1), method.task.given)
    records = run(method, data)
    assert method.network is not first
    true = data.source.true_label
    assert true is not None
    given_right = float((method.task.given == true).double().mean())
    assert float((method.soft_labels(index).argmax(1) == true).double().mean()) > given_right + 0.15
    assert "labels/changed" not in records[1]
    assert records[2]["labels/changed"] > 0.1
    assert torch.allclose(method.soft_labels(index).sum(1), torch.ones(len(index)))


def test_without_a_warm_up_the_network_is_kept_and_its_features_are_used_as_they_are() -> None:
    method, data = build(warm_up=0)
    first = method.network
    method.begin_epoch(0, data)
    assert method.network is first
    assert method.purified


def test_features_too_large_for_memory_are_in_a_file_until_the_labels_are_purified(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    method, data = build(warm_up=0)
    assert isinstance(method, DMLP)
    method.begin_epoch(0, data)
    monkeypatch.setattr("mslg.data.sample_table.LARGE", 0)
    task, data = problem(tables=tmp_path)
    in_a_file = DMLP(task, warm_up=0)
    in_a_file.begin_epoch(0, data)
    index = torch.arange(len(task.given))
    assert torch.equal(in_a_file.soft_labels(index), method.soft_labels(index))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("features")] == []


def test_features_of_every_position_are_averaged() -> None:
    features = drawn(2, 5, 3)
    assert torch.allclose(pooled(features)[1], torch.stack([features[1, place] for place in range(5)]).sum(0) / 5)
    assert pooled(features[:, 0]).shape == (2, 3)


def test_a_step_never_waits_and_a_run_resumes_to_the_bit() -> None:
    method, data = build()
    check_step(method, data)
    method.begin_epoch(2, data)
    check_step(method, data, epoch=2)
    check_resume(build, stop=20)


def test_errors() -> None:
    task, _ = problem()
    for settings, message in [
        ({"purify_steps": 0}, "purify_steps is 0; at least 1"),
        ({"ridge": 0.0}, "ridge is 0.0; it must be above 0"),
        ({"exchange_every": -1}, "exchange_every is -1; it must be 0"),
        ({"confidence_weight": -1.0}, "confidence_weight is -1.0; it must be 0 or more"),
    ]:
        with pytest.raises(ValueError, match=message):
            DMLP(task, **settings)  # type: ignore[arg-type]
    method = DMLP(task)
    with pytest.raises(ValueError, match="before it had any labels"):
        method.continue_from(method.state_dict())

"""The authors' code, replayed with double backward: its logarithm has an offset of 1e-10."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mslg.data.batch import Batch
from mslg.methods.mslg.method import MSLG
from mslg.training.loop import _step
from mslg.training.method import Task
from tests.support import toy

CLASSES, SAMPLES, ALPHA, BETA, RATE = 10, 12, 0.5, 4000.0, 0.01


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, CLASSES)).double()


def batch(seed: int) -> Batch:
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(SAMPLES, 6, generator=random, dtype=torch.float64)
    return Batch(torch.arange(SAMPLES), inputs, torch.randint(CLASSES, (SAMPLES,), generator=random))


def displacements(size: float) -> Tensor:
    return size * torch.randn(SAMPLES, CLASSES, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def released(size: float, log_offset: float, *, accumulate: int = 1) -> MSLG:
    """After the warm-up, with displacements of this standard deviation in double precision."""
    task = Task(
        batch(1).label,
        CLASSES,
        network,
        12,
        SAMPLES,
        optimizer=lambda p: torch.optim.SGD(p, lr=RATE),
        accumulate=accumulate,
    )
    method = MSLG(task, **{**MSLG.presets["released"](task), "log_offset": log_offset})
    method.table.displacement.rows = displacements(size)
    method.train()
    toy.go_to(method, 11)
    return method


def authors_step(net: nn.Module, label_logits: Tensor, offset: float) -> tuple[Tensor, list[Tensor]]:
    """The change of the label logits and the new weights. Losses are means over samples and classes."""
    noisy, clean = batch(1), batch(2)
    parameters = list(net.parameters())

    def classification(logits: Tensor, of: Tensor) -> Tensor:
        return (logits.softmax(1) * (logits.log_softmax(1) - (of.softmax(1) + offset).log())).mean()

    leaf = label_logits.clone().requires_grad_()
    output = toy.at_weights(net, parameters, noisy.inputs)
    gradients = torch.autograd.grad(classification(output, leaf), parameters, create_graph=True)
    ahead = [p - ALPHA * g for p, g in zip(parameters, gradients, strict=True)]
    clean_loss = F.cross_entropy(toy.at_weights(net, ahead, clean.inputs), clean.label)
    (meta,) = torch.autograd.grad(clean_loss, leaf, retain_graph=True)
    change = -BETA * meta
    entropy = -(output.softmax(1) * output.log_softmax(1)).mean()
    final = torch.autograd.grad(classification(output, label_logits + change) + entropy, parameters)
    return change, [(p - RATE * g).detach() for p, g in zip(parameters, final, strict=True)]


def apart(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("size", [0.0, 3.0, 15.0])
def test_with_the_offset_released_is_the_authors_step(size: float, accumulate: int) -> None:
    """Also if the batch is divided into micro-batches."""
    method = released(size, 1e-10, accumulate=accumulate)
    before = method.table.displacement.rows.clone()
    change, weights = authors_step(copy.deepcopy(method.network), method.table.logits(torch.arange(SAMPLES)), 1e-10)
    _step(method, batch(1), toy.endless(batch(2)))
    assert apart(method.table.displacement.rows - before, change) < 1e-6
    for found, expected in zip(toy.weights_of(method.network), weights, strict=True):
        assert torch.allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_without_it_far_labels_move_otherwise() -> None:
    """Both are exact, of different losses: at the start they agree, far from it they do not."""
    by = []
    for size in (0.0, 3.0, 15.0):
        method = released(size, 0.0)
        before = method.table.displacement.rows.clone()
        logits = method.table.logits(torch.arange(SAMPLES))
        exact, offset = (authors_step(copy.deepcopy(method.network), logits, each)[0] for each in (0.0, 1e-10))
        method.step(batch(1), toy.endless(batch(2)))
        if size < 15:  # beyond, the softmax of the replay is 0 somewhere, and its logarithm infinite
            assert apart(method.table.displacement.rows - before, exact) < 1e-6
        by.append(apart(method.table.displacement.rows - before, offset))
    assert by[0] < 1e-4 < by[1] < 0.3 < by[2]


def test_only_the_form_of_the_authors_has_an_offset() -> None:
    task = toy.task()
    for settings in ({}, {"prior": "given"}, {"prior": "matrix", "loss": "reverse-kl"}):
        with pytest.raises(ValueError, match=r'only loss="reverse-kl" with prior="given" has it'):
            MSLG(task, log_offset=1e-10, **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"log_offset is -1\.0; it must be 0 or more"):
        MSLG(task, log_offset=-1.0)
    assert all("log_offset" not in MSLG.presets[name](task) for name in MSLG.presets)

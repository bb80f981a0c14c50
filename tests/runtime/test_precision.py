"""Half precision: what computes in it, what does not, and that runs in it are runs like others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mslg
from mslg.bilevel import Bilevel, hessian_vector_product
from mslg.bilevel.fallbacks import EXACT, ONE_SIDED, TangentMode
from mslg.data.batch import call
from mslg.methods import METHODS
from mslg.networks.mlp import MLP
from mslg.runs.open_data import open_data
from mslg.runtime.precision import SCALE, check_precision, computing, full_precision, gradient, half
from mslg.training.loop import train
from mslg.training.losses import cross_entropy
from mslg.training.optimizer_step import OptimizerStep
from tests.support.blobs import blobs, small_network
from tests.support.every_method import EPOCHS, problem
from tests.support.method_problems import Problem, check_resume
from tests.support.method_problems import problem as small_problem

CPU = torch.device("cpu")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(self.embed(inputs)).mean(1))
        return logits


def convolutions() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.GELU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(8, 4)),
    )


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.SiLU(), nn.Dropout(0.2), nn.Linear(16, 4))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "layers": (layers, (16, 6)),
    "convolutions": (convolutions, (16, 3, 8, 8)),
    "attention": (Attention, (16, 5, 6)),
}


def test_logits_and_losses_stay_in_float32() -> None:
    network = small_network()
    with computing("bf16", CPU):
        inner = network[0](torch.randn(6, 2))
        logits = call(network, torch.randn(6, 2))
        assert half(CPU) is torch.bfloat16
    assert (inner.dtype, logits.dtype, logits.log_softmax(1).dtype) == (torch.bfloat16, torch.float32, torch.float32)
    assert half(CPU) is None
    assert call(copy.deepcopy(network).double(), torch.randn(6, 2).double()).dtype == torch.float64


def test_a_pass_after_a_step_sees_the_new_weights() -> None:
    network, inputs = nn.Linear(3, 2), torch.randn(4, 3)
    with computing("bf16", CPU):
        OptimizerStep()(torch.optim.SGD(network.parameters(), lr=1.0), call(network, inputs).square().mean())
        after = call(network, inputs)
    with computing("bf16", CPU):
        assert torch.equal(after, call(network, inputs))


@pytest.mark.parametrize("mode", [*EXACT, ONE_SIDED], ids=lambda mode: mode.description)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_way_to_the_tangent_works_in_half_precision(name: str, mode: TangentMode) -> None:
    build, shape = NETWORKS[name]
    torch.manual_seed(0)
    network, inputs, clean = build(), torch.randn(shape), torch.randn(shape)
    label = torch.randint(4, (len(inputs),))

    def loss(logits: Tensor) -> Tensor:
        return cross_entropy(logits.log_softmax(1), label).mean()

    found = []
    for way, precision in ((EXACT[0].function, "float32"), (mode.function, "bf16")):
        engine = Bilevel(copy.deepcopy(network))
        torch.manual_seed(1)  # of dropout
        with computing(precision, CPU):  # type: ignore[arg-type]
            done, direction, _ = engine._look(inputs, loss, clean, loss, 0.01)
            found.append(way(done, direction).detach())
    exact, rough = found
    assert rough.dtype == torch.float32
    assert torch.linalg.vector_norm(rough - exact) < 0.03 * torch.linalg.vector_norm(exact)


def test_second_derivatives_are_taken_in_full_precision() -> None:
    torch.manual_seed(0)
    network, inputs = layers().eval(), torch.randn(8, 6)
    parameters = list(network.parameters())
    names = [name for name, _ in network.named_parameters()]
    vector = [torch.randn_like(p) for p in parameters]

    def loss(values: object) -> Tensor:
        return torch.func.functional_call(network, dict(zip(names, values, strict=True)), (inputs,)).square().mean()  # type: ignore[call-overload]

    with computing("bf16", CPU):
        found = hessian_vector_product(loss, parameters, vector)
    for rough, exact in zip(found, hessian_vector_product(loss, parameters, vector), strict=True):
        assert torch.equal(rough, exact)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_in_half_precision(name: str) -> None:
    method, data, evaluation = problem(name)
    method.task.precision = "bf16"
    records = list(train(method, data, epochs=EPOCHS, evaluation=evaluation))
    assert all(np.isfinite(list(record.metrics.values())).all() for record in records)
    assert records[-1].metrics["test/accuracy"] > 0.5
    assert all(p.dtype == torch.float32 for p in method.parameters())


@pytest.mark.parametrize("method", ["cross-entropy", "mslg"])
def test_half_precision_costs_no_accuracy(method: str) -> None:
    data = open_data({"source": "digits", "noise": "uniform", "rate": 0.4, "clean": 100}, seed=0)
    found = {}
    for precision in ("float32", "bf16"):
        result = mslg.fit(
            lambda: MLP(64, 10, hidden=[64]),
            data.train,
            data.clean,
            test=data.test,
            method=method,
            precision=precision,  # type: ignore[arg-type]
            epochs=8,
            progress=False,
        )
        found[precision] = result.summary["last"]["test/accuracy"]
    assert found["float32"] > 0.8
    assert abs(found["float32"] - found["bf16"]) < 0.02


def test_the_precision_is_part_of_the_run(tmp_path: Path) -> None:
    data = blobs()
    told = {"method": "cross-entropy", "epochs": 2, "progress": False, "output": tmp_path / "run"}
    result = mslg.fit(small_network, (data.x, data.given), precision="bf16", **told)
    assert result.run is not None
    assert result.run.config["train"]["precision"] == "bf16"
    with pytest.raises(ValueError, match=r"train.precision = 'bf16', now it is 'float32'"):
        mslg.fit(small_network, (data.x, data.given), resume=True, **told)


@pytest.mark.parametrize("stop", [3, 20])
def test_an_interrupted_run_in_half_precision_ends_the_same(stop: int) -> None:
    def build() -> Problem:
        task, data = small_problem(precision="bf16")
        return METHODS.load("mslg")(task), data

    check_resume(build, stop)


def test_impossible_precisions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"fp16.* which only GPUs support; this run is on the CPU; use \"bf16\""):
        check_precision("fp16", CPU)
    with pytest.raises(ValueError, match=r"unknown precision 'bfloat16'.*Allowed: float32, bf16, fp16"):
        check_precision("bfloat16", CPU)


# --- fp16: its logic on the CPU, where torch computes in it too, if slowly


def test_small_gradients_survive_fp16() -> None:
    weight = torch.ones(3, requires_grad=True)
    with computing("fp16", CPU):
        tiny = (weight.half() * 1e-4).float().sum() * 1e-5  # 1e-9 is zero in fp16
        (lost,) = torch.autograd.grad(tiny, [weight], retain_graph=True)
        (found,) = gradient(tiny, [weight])
    assert lost.abs().max() == 0
    assert found is not None
    assert torch.allclose(found, torch.full((3,), 1e-9), rtol=0.05)


def test_an_overflow_counts_as_no_gradient() -> None:
    weight = torch.ones(2, requires_grad=True)
    with computing("fp16", CPU):
        (found,) = gradient((weight.half() * torch.tensor([1.0, 2e4]).half()).float().sum() * 1e5, [weight])
    assert SCALE > 1
    assert torch.equal(found, torch.zeros(2))  # type: ignore[arg-type]


def test_a_step_with_an_overflow_is_left_out_and_the_scale_halved() -> None:
    network = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = network.weight.detach().clone()
    descend = OptimizerStep(scaler)
    descend(optimizer, network(torch.ones(1, 2)).sum() * torch.inf)
    assert torch.equal(network.weight, before)
    assert scaler.get_scale() == 512
    descend(optimizer, network(torch.ones(1, 2)).sum())
    assert torch.allclose(network.weight, before - 0.1)


def test_scaled_steps_are_those_without_a_scale() -> None:
    torch.manual_seed(0)
    plain, inputs = nn.Linear(3, 2), torch.randn(6, 3)
    scaled = copy.deepcopy(plain)
    for network, scaler in ((plain, None), (scaled, torch.amp.GradScaler("cpu"))):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        more = [(network.bias, torch.ones(2))]
        descend = OptimizerStep(scaler)
        descend(optimizer, network(inputs).square().mean(), plus=more, weight=0.5)
        for number, rows in enumerate(inputs.split(3)):
            with descend.microbatch(0.5, first=number == 0, last=number == 1):
                descend(optimizer, network(rows).square().mean(), plus=more, weight=0.5)
    for ours, theirs in zip(scaled.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("name", ["cross-entropy", "co-teaching", "mslg", "meta-weight-net", "mlnt"])
def test_the_scale_is_part_of_the_checkpoint(name: str) -> None:
    """Methods in fp16 on the CPU: not what fit allows, but the same code as on a GPU."""
    method, data, _ = problem(name)
    method.task.precision = "fp16"
    scaler = method.optimizer_step.scaler = torch.amp.GradScaler("cpu", growth_interval=10)
    scales = set()
    for record in train(method, data, epochs=EPOCHS):
        assert np.isfinite(record.metrics["train/loss"])
        scales.add(scaler.get_scale())
    assert scales != {65536.0}
    state = method.state_dict()["_extra_state"]
    method.optimizer_step.scaler = torch.amp.GradScaler("cpu")
    method.set_extra_state(state)
    assert method.optimizer_step.scaler.state_dict() == state["scaler"]


def test_full_precision_inside_half() -> None:
    with computing("bf16", CPU), full_precision(CPU):
        assert nn.Linear(2, 2)(torch.ones(1, 2)).dtype == torch.float32

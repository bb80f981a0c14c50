"""Micro-batches: the same training with the memory of one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mslg
from mslg.data.batch import Batch
from mslg.data.splits import Splits
from mslg.methods import METHODS
from mslg.runs.recipes import assignments
from mslg.runtime.sharding import plain
from mslg.training.loop import CleanMicrobatches, Position, PredictionHistory, train
from mslg.training.method import Method, Task
from mslg.training.optimizer_step import OptimizerStep, take_step
from mslg.training.schedules import Steps
from tests.support.blobs import blobs, same_state, small_network
from tests.support.every_method import EPOCHS, problem
from tests.support.two_ranks import Double

# Variants with other settings than the defaults, and defaults that a comparison to 1e-10 needs.
SETTINGS: dict[str, dict[str, Any]] = {
    "generalized-ce": {"q": 0.5},
    "mslg": {"finish": 0.0, "look_ahead": 0.05},
    "mslg-published": {"preset": "published", "clean_every": 2},
    "mslg-without-look-ahead": {"look_ahead": 0.0, "prior": "given"},
}
NAMES = dict.fromkeys([*METHODS.built_in, *SETTINGS])
# What the page of a method says if it decides something within a batch, so that micro-batches are not the batch.
SAID = "within a micro-batch"
PAGES = Path(__file__).parents[2] / "docs" / "methods"


def in_double(name: str, accumulate: int, settings: dict[str, Any]) -> tuple[Method, Splits]:
    _, data, _ = problem("cross-entropy")
    made = METHODS.load(name.split("-published")[0].split("-without-look")[0])
    task = Task(
        problem("cross-entropy")[0].task.given,
        4,
        Double,
        EPOCHS,
        24,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        schedule=Steps({0.5: 0.1}),
        noise_rate=0.3,
        transition=0.7 * torch.eye(4) + 0.1 * (torch.ones(4, 4) - torch.eye(4)),
        accumulate=accumulate,
        seed=1,
    )
    settings = dict(settings)
    if preset := settings.pop("preset", None):
        settings = {**made.presets[preset](task), **settings}
    return made(task, **settings), data


@pytest.mark.parametrize("name", NAMES)
def test_a_run_in_microbatches_is_the_run_unless_the_page_says_otherwise(name: str) -> None:
    page = PAGES / f"{name}.md"
    differs = page.exists() and SAID in page.read_text()
    whole, apart = (in_double(name, accumulate, SETTINGS.get(name, {})) for accumulate in (1, 4))
    records = [list(train(method, data, epochs=EPOCHS)) for method, data in (whole, apart)]
    networks = [method.deployed().parameters() for method, _ in (whole, apart)]
    furthest = max(float((ours - theirs).detach().abs().max()) for ours, theirs in zip(*networks, strict=True))
    if differs:
        assert furthest > 1e-10, f"take '{SAID}' off docs/methods/{name}.md: the runs are the same"
        return
    assert furthest < 1e-10, f"if {name} decides something within a batch, say what is decided '{SAID}' on its page"
    for left, right in zip(*records, strict=True):
        for key, value in left.metrics.items():
            assert right.metrics[key] == pytest.approx(value, abs=1e-7), key


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_in_microbatches(name: str) -> None:
    method, data, evaluation = problem(name)
    method.task.accumulate = 4
    record = list(train(method, data, epochs=EPOCHS, evaluation=evaluation))[-1]
    assert record.metrics["test/accuracy"] > 0.5


@pytest.mark.parametrize("name", ["co-teaching", "mslg"])
def test_a_run_in_microbatches_resumes_bit_for_bit(name: str) -> None:
    def parted() -> tuple[Method, Splits]:
        method, data, _ = problem(name)
        method.task.accumulate = 3
        return method, data

    method, data = parted()
    whole = [record.metrics for record in train(method, data, epochs=EPOCHS)]
    stopped, _ = parted()
    position = Position(PredictionHistory(stopped.task.given, 4))
    saved: dict[str, Any] = {}

    def after_step(position: Position) -> None:
        if (position.epoch, position.step) == (5, 2):
            saved.update(method=stopped.state_dict(), position=position.state_dict())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(train(stopped, data, epochs=EPOCHS, position=position, after_step=after_step))
    resumed, _ = parted()
    resumed.load_state_dict(saved["method"])
    position = Position(PredictionHistory(resumed.task.given, 4))
    position.load_state_dict(saved["position"])
    assert [record.metrics for record in train(resumed, data, epochs=EPOCHS, position=position)] == whole[5:]
    assert same_state(resumed.state_dict(), method.state_dict())


def test_the_optimizer_steps_at_the_last_microbatch() -> None:
    network, inputs = nn.Linear(3, 2), torch.randn(9, 3)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    before = network.weight.detach().clone()
    expected = before - 0.1 * torch.autograd.grad(network(inputs).square().mean(), network.weight)[0]
    descend = OptimizerStep()
    for number, rows in enumerate(inputs.tensor_split(2)):
        with descend.microbatch(len(rows) / 9, first=number == 0, last=number == 1):
            descend(optimizer, network(rows).square().mean())
        assert torch.equal(network.weight, before) == (number == 0)
    assert torch.allclose(network.weight, expected)


def test_nothing_of_an_interrupted_microbatch_is_left() -> None:
    network, inputs = nn.Linear(3, 2), torch.randn(9, 3)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    descend = OptimizerStep()
    with pytest.raises(RuntimeError), descend.microbatch(0.5, first=True, last=False):
        descend(optimizer, network(inputs))  # no scalar, so it has no gradient
    before = network.weight.detach().clone()
    expected = before - 0.1 * torch.autograd.grad(network(inputs).square().mean(), network.weight)[0]
    descend(optimizer, network(inputs).square().mean())
    assert torch.allclose(network.weight, expected)


def test_a_clean_batch_is_cut_as_the_noisy_one_is() -> None:
    batch = Batch(torch.arange(6), torch.arange(6.0), torch.arange(6))
    taken = iter([batch])
    parts = CleanMicrobatches(taken, 3)
    assert [next(parts).index.tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert list(taken) == []
    untouched = iter([batch])
    CleanMicrobatches(untouched, 3)  # a method that wants no clean batch takes none
    assert len(list(untouched)) == 1


def test_the_microbatches_of_a_batch_are_the_batch() -> None:
    batch = Batch(torch.arange(7), {"a": torch.arange(14).view(7, 2), "b": (torch.arange(7),)}, torch.arange(7) % 2)
    parts = batch.microbatches(3)
    assert [len(p.index) for p in parts] == [2, 2, 3]
    assert torch.equal(torch.cat([p.inputs["a"] for p in parts]), batch.inputs["a"])
    assert torch.equal(torch.cat([p.inputs["b"][0] for p in parts]), batch.inputs["b"][0])
    assert [len(p.index) for p in batch.microbatches(100)] == [2, 2, 3]


def test_fit_in_microbatches(tmp_path: Path) -> None:
    data = blobs()
    told = {"method": "cross-entropy", "epochs": 2, "progress": False}
    result = mslg.fit(small_network, (data.x, data.given), accumulate=4, output=tmp_path / "run", **told)
    assert result.run is not None
    assert result.run.config["train"]["accumulate"] == 4
    for wrong in (0, 33, "2"):
        with pytest.raises(
            ValueError, match=r"accumulate is .*; (it must be a whole number, 1 or|a batch of 64 samples)"
        ):
            mslg.fit(small_network, (data.x, data.given), accumulate=wrong, **told)  # type: ignore[arg-type]


def test_the_command_line_knows_it() -> None:
    assert assignments(["accumulate=4", "precision=bf16"], "mslg")["train"] == {"accumulate": 4, "precision": "bf16"}


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_are_clipped_to_the_norm_asked_for(accumulate: int) -> None:
    layer = torch.nn.Linear(3, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    before, step = layer.weight.detach().clone(), OptimizerStep(clip=0.5)
    for number in range(accumulate):
        with step.microbatch(1 / accumulate, first=number == 0, last=number == accumulate - 1):
            step(optimizer, 100 * layer(torch.ones(2, 3)).mean())
    assert float((layer.weight.detach() - before).norm()) == pytest.approx(0.5, rel=1e-4)


def test_the_record_says_what_the_optimizer_uses(tmp_path: Path) -> None:
    data = blobs()
    told: dict[str, Any] = {"method": "cross-entropy", "epochs": 2, "progress": False}
    for number, (settings, used) in enumerate(
        [
            ({}, {"learning_rate": 0.05, "weight_decay": 1e-4, "momentum": 0.9}),
            ({"momentum": 0.5, "optimizer_options": {"nesterov": True}}, {"momentum": 0.5}),
            (
                {"optimizer": torch.optim.AdamW, "learning_rate": 3e-3, "weight_decay": 0.3},
                {"learning_rate": 3e-3, "weight_decay": 0.3, "optimizer": "AdamW"},
            ),
            (
                {"optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.007)},
                {"learning_rate": 0.007, "weight_decay": 0.0},
            ),
            ({"gradient_clip": 2.0}, {"gradient_clip": 2.0}),
        ]
    ):
        output = tmp_path / str(number)
        result = mslg.fit(small_network, (data.x, data.given), output=output, **told, **settings)
        assert result.run is not None
        recorded = result.run.config["train"]
        assert {key: recorded[key] for key in used} == used
    with pytest.raises(ValueError, match="unknown argument of Adam 'nesterov'"):
        mslg.fit(small_network, (data.x, data.given), optimizer="adam", optimizer_options={"nesterov": True}, **told)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_a_step_is_that_of_the_optimizer(kind: type[torch.optim.Optimizer]) -> None:
    networks = [nn.Linear(3, 2), nn.Linear(3, 2)]
    networks[1].load_state_dict(networks[0].state_dict())
    own, of_torch = (kind(network.parameters(), lr=0.1, weight_decay=0.01) for network in networks)  # type: ignore[call-arg]
    for _ in range(3):
        for network in networks:
            network.zero_grad()
            network(torch.ones(4, 3)).square().sum().backward()
        take_step(own)
        of_torch.step()
    assert all(torch.equal(*pair) for pair in zip(*(network.parameters() for network in networks), strict=True))


def test_what_is_hooked_into_an_optimizer_is_called() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    called: list[str] = []
    handle = optimizer.register_step_post_hook(lambda *_: called.append("hook"))
    take_step(optimizer)
    handle.remove()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    take_step(optimizer)
    scheduler.step()  # warns if the optimizer has not stepped, and the warning is an error here
    assert called == ["hook"]


@pytest.mark.parametrize("transposed", [False, True])
def test_sgd_steps_all_parameters_in_one_call_where_they_are_flat(transposed: bool) -> None:
    """A weight whose gradient has other strides takes torch's own way. No setting of the optimizer is changed."""
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        weights = [torch.randn(33, 17, requires_grad=True), torch.randn(5, requires_grad=True)]
        optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=1e-3)
        for _ in range(3):
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            if transposed:
                weights[0].grad = torch.randn(17, 33).t()
            take_step(optimizer) if not made else optimizer.step()
        assert optimizer.param_groups[0]["fused"] is None
        made.append(weights)
    for one, other in zip(*made, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_sgd_goes_on_from_a_state_of_torch_and_torch_from_its_own() -> None:
    """Momenta are where torch keeps them. A weight that gets its first gradient later takes torch's own way."""
    made = []
    for own in (False, True):
        torch.manual_seed(0)
        weights = [torch.randn(9, 4, requires_grad=True), torch.randn(4, requires_grad=True)]
        optimizer = torch.optim.SGD(
            [{"params": weights[:1]}, {"params": weights[1:], "lr": 0.05}], lr=0.1, momentum=0.9
        )
        for number in range(6):
            weights[0].grad = torch.randn_like(weights[0])
            weights[1].grad = None if number < 2 else torch.randn_like(weights[1])
            take_step(optimizer) if own and number % 3 else optimizer.step()
        made.append([*weights, *(optimizer.state[weight]["momentum_buffer"] for weight in weights)])
    for one, other in zip(*made, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("twice", [False, True])
def test_predictions_folded_together_are_those_folded_one_by_one(twice: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for together in (1, 4):
        monkeypatch.setattr("mslg.training.prediction_history.TOGETHER", together)
        history, random = PredictionHistory(torch.zeros(20, dtype=torch.int64), 3), torch.Generator().manual_seed(0)
        for step in range(7):
            index = torch.arange(5 * (step % 4), 5 * (step % 4) + 5) if not twice else torch.tensor([step % 2, 7])
            history.fold(index, torch.randn(len(index), 3, generator=random).log_softmax(1))
        found.append({name: table["rows"] for name, table in history.state_dict().items() if "rows" in table})
    assert found[0].keys() == {"visits", "mean", "last_given", "last_predicted"}
    assert all(torch.equal(plain(rows), plain(found[1][name])) for name, rows in found[0].items())

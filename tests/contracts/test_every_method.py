"""One contract for every method: registering is being tested."""

from __future__ import annotations

import copy
import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mslg.data.make_splits import make_splits
from mslg.data.readers.digits import digits
from mslg.data.source import make_source
from mslg.data.splits import Samples, Splits
from mslg.methods import METHODS
from mslg.networks.mlp import MLP
from mslg.noise.uniform import uniform
from mslg.runs.checkpoint import load_state, save_state
from mslg.training.evaluation import Evaluation
from mslg.training.loop import Position, train
from mslg.training.method import Method, Task
from mslg.training.prediction_history import PredictionHistory
from mslg.training.schedules import Steps, schedule
from tests.support.blobs import blobs, same_state, small_network

EPOCHS = 9  # enough for every stage of every method
STEPS = 6  # an epoch


def problem(name: str, *, clean: bool = True, **settings: Any) -> tuple[Method, Splits, Evaluation]:
    data = blobs(samples=STEPS * 24)
    noisy = make_source(data.x, data.given, true_labels=data.true)
    splits = make_splits(noisy, make_source(data.clean_x, data.clean_y), batch_size=24, clean_batch_size=8, seed=1)
    transition = 0.7 * torch.eye(4) + 0.1 * (torch.ones(4, 4) - torch.eye(4))
    task = Task(
        noisy.label,
        4,
        small_network,
        EPOCHS,
        24,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4),
        schedule=Steps({0.5: 0.1}),
        noise_rate=0.3,
        transition=transition,
        seed=1,
    )
    test = make_source(data.test_x, data.test_y)
    evaluation = Evaluation(splits, Samples(test.store, torch.arange(len(test)), test.label), noisy.true_label)
    return METHODS.load(name)(task, **settings), splits, evaluation


@pytest.mark.parametrize("name", METHODS)
def test_a_whole_run_is_finite_and_well_formed(name: str) -> None:
    method, data, evaluation = problem(name)
    records = list(train(method, data, epochs=EPOCHS, evaluation=evaluation))
    assert len(records) == EPOCHS
    assert all(np.isfinite(list(record.metrics.values())).all() for record in records)
    assert "train/loss" in records[-1].metrics
    method.eval()
    batch = next(data.in_order())
    with torch.no_grad():
        log_probs = method.predict(batch.inputs)
    assert log_probs.shape == (len(batch.index), 4)
    assert torch.allclose(log_probs.exp().sum(1), torch.ones(len(batch.index)), atol=1e-5)
    soft = method.soft_labels(batch.index)
    if soft is not None:
        assert soft.shape == (len(batch.index), 4)
        assert torch.allclose(soft.sum(1), torch.ones(len(batch.index)), atol=1e-4)
    assert isinstance(method.deployed(), torch.nn.Module)
    assert method.relative_cost(EPOCHS - 1) >= 1


@pytest.mark.parametrize("name", METHODS)
def test_a_step_tells_scalars_and_log_probabilities_without_a_graph(name: str) -> None:
    method, data, _ = problem(name)
    for epoch in range(EPOCHS):
        method.set_progress(epoch, epoch / EPOCHS)
        method.begin_epoch(epoch, data)
        clean = data.clean_batches(epoch)
        batch = next(data.batches(epoch))
        result = method.step(batch, clean)
        assert result.log_probs.shape == (len(batch.index), 4)
        assert not result.log_probs.requires_grad
        for value in result.scalars.values():
            assert value.dim() == 0
            assert not value.requires_grad
        method.end_epoch(epoch, data)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    runs = []
    for _ in range(2):
        method, data, evaluation = problem(name)
        runs.append(
            ([r.metrics for r in train(method, data, epochs=EPOCHS, evaluation=evaluation)], method.state_dict())
        )
    assert same_state(*runs)


@pytest.mark.parametrize("name", METHODS)
def test_resumed_from_a_file_at_several_steps_it_ends_the_same(name: str, tmp_path: Path) -> None:
    method, data, evaluation = problem(name)
    taken: list[Path] = []

    def after_step(position: Position) -> None:
        if (position.epoch * STEPS + position.step) % 10 == 3:
            taken.append(tmp_path / f"{position.epoch}-{position.step}")
            save_state(taken[-1], {"method": dict(method.state_dict()), "position": position.state_dict()})

    whole = [r.metrics for r in train(method, data, epochs=EPOCHS, evaluation=evaluation, after_step=after_step)]
    assert len(taken) >= 4
    for path in taken:
        resumed, data, evaluation = problem(name)
        position = Position(PredictionHistory(resumed.task.given, 4))
        state = load_state(path)
        resumed.load_state_dict(state["method"])
        position.load_state_dict(state["position"])
        first = position.epoch
        rest = [r.metrics for r in train(resumed, data, epochs=EPOCHS, position=position, evaluation=evaluation)]
        assert rest == whole[first:], path.name
        assert same_state(resumed.state_dict(), method.state_dict()), path.name


@pytest.mark.parametrize("name", METHODS)
def test_learning_rates_follow_the_schedule(name: str) -> None:
    method, _, _ = problem(name)
    own = type(method).learning_rate_factor is not Method.learning_rate_factor
    for progress in (0.0, 0.3, 0.6, 0.95):
        method.set_progress(int(progress * EPOCHS), progress)
        if own:
            assert 0 < method.learning_rate() < 1
        else:
            assert method.learning_rate() == pytest.approx(0.05 * (0.1 if progress >= 0.5 else 1))


class NoWaiting(TorchDispatchMode):
    """Fails on anything that would make a GPU's host wait: reading values, or shapes that depend on them."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique", "_unique2", "item")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put", "index_put_") and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in args[1]
        )
        if (name in self.WAITING or by_mask) and not _inside_an_optimizer():
            raise AssertionError(f"step waits for the device: {func}")
        return func(*args, **(kwargs or {}))


def _inside_an_optimizer() -> bool:
    """Adam reads its step counters, which are on the host anyway."""
    frame = sys._getframe()
    while frame is not None:
        if "torch/optim" in frame.f_code.co_filename:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


@pytest.mark.parametrize("name", METHODS)
def test_a_step_never_waits_for_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, data, _ = problem(name)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("step moves a tensor to the host")

    for epoch in range(EPOCHS):
        method.set_progress(epoch, epoch / EPOCHS)
        method.begin_epoch(epoch, data)
        batch = next(data.batches(epoch))
        clean = iter([next(data.clean_batches(epoch)) for _ in range(3)])
        with monkeypatch.context() as patch:
            for transfer in ("cpu", "numpy", "tolist", "cuda"):
                patch.setattr(torch.Tensor, transfer, refuse)
            with NoWaiting():
                method.step(batch, clean)
        method.end_epoch(epoch, data)


@pytest.mark.parametrize("name", METHODS)
def test_it_learns_digits_with_a_fifth_of_the_labels_wrong(name: str) -> None:
    data = digits(seed=0)
    images = torch.cat(list(data.train.store.batches([torch.arange(len(data.train))])))
    true = data.train.label
    given = uniform(true[:1200], 0.2, np.random.default_rng(0), classes=10)
    noisy = make_source(images[:1200], given.label, true_labels=true[:1200])
    splits = make_splits(noisy, make_source(images[1200:], true[1200:]), batch_size=64, seed=0)
    task = Task(
        noisy.label,
        10,
        lambda: MLP(64, 10, hidden=(64,)),
        EPOCHS,
        64,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4),
        schedule=schedule("cosine"),
        noise_rate=0.2,
        transition=given.realised.float(),
    )
    assert data.test is not None
    evaluation = Evaluation(splits, Samples(data.test.store, torch.arange(len(data.test)), data.test.label))
    method = METHODS.load(name)(task)
    *_, record = train(method, splits, epochs=EPOCHS, evaluation=evaluation)
    assert record.metrics["test/accuracy"] > 0.6


@pytest.mark.parametrize("name", METHODS)
def test_the_constructor_is_a_schema(name: str) -> None:
    for parameter in list(inspect.signature(METHODS.load(name)).parameters.values())[1:]:
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, parameter
        assert parameter.annotation is not inspect.Parameter.empty, parameter
        assert parameter.default is not inspect.Parameter.empty, parameter


@pytest.mark.parametrize(("name", "preset"), [(name, p) for name in METHODS for p in METHODS.load(name).presets])
def test_presets_bind_to_the_constructor(name: str, preset: str) -> None:
    made = METHODS.load(name)
    task = problem(name)[0].task
    settings = made.presets[preset](task)
    assert set(settings) <= set(inspect.signature(made).parameters)
    if settings.get("matrix") != "pairs":  # the toy task has no doubly labelled samples
        made(task, **settings)


@pytest.mark.parametrize("name", METHODS)
def test_a_page_of_the_docs_tells_about_it(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "methods" / f"{name}.md").read_text()
    for heading in ("When to use it", "Arguments", "Logged metrics", "Differences from the original", "Published"):
        assert f"## {heading}" in page
    for argument in list(inspect.signature(METHODS.load(name)).parameters)[1:]:
        assert f"`{argument}`" in page, argument


@pytest.mark.parametrize("name", [name for name in METHODS if "clean set" in METHODS[name].needs])
def test_without_clean_samples_the_error_says_what_to_pass(name: str) -> None:
    method, data, _ = problem(name)
    nothing = copy.replace(data, clean=None) if hasattr(copy, "replace") else Splits(data.train, None, None, None)
    with pytest.raises(ValueError, match=r"needs clean samples and there are none; pass clean="):
        for _ in train(method, nothing, epochs=EPOCHS):
            pass

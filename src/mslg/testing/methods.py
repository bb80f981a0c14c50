"""The contract of a method: what `fit`, checkpoints and the report rely on."""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..data.batch import Batch
from ..data.make_splits import make_splits
from ..data.readers.digits import digits
from ..data.samples import Samples
from ..data.source import make_source
from ..networks.mlp import MLP
from ..noise.uniform import uniform
from ..runs.checkpoint import load_state, save_state
from ..runs.settings import Options, Train
from ..training.evaluation import Evaluation
from ..training.loop import Position, train
from ..training.method import Method, Task
from ..training.prediction_history import PredictionHistory
from ..training.schedules import cosine
from .problem import CLASSES, EPOCHS, LEARNING_RATE, STEPS, Problem, problem, same_state

NEEDS = {"clean set", "noise rate", "transition matrix"}


def check_method(method: type[Method]) -> None:
    """Check a method against the contract that every built-in one fulfils. It takes a few seconds.

    Args:
        method: A subclass of `mslg.Method`.

    Raises:
        AssertionError: The contract that is broken.
    """
    for check in METHOD_CHECKS:
        check(method)


def check_constructor_is_a_schema(method: type[Method]) -> None:
    """Settings are keyword-only, typed and have defaults: recipes and options are checked against the signature."""
    taken = {item.name for table in (Train, Options) for item in fields(table)}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        contract = f"{method.__name__}(task, *, {parameter.name}): every setting must"
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, f"{contract} be keyword-only"
        assert parameter.annotation is not inspect.Parameter.empty, f"{contract} have a type annotation"
        assert parameter.default is not inspect.Parameter.empty, f"{contract} have a default"
        assert parameter.name not in taken, f"{contract} have a name of its own; `{parameter.name}` is one of fit's"
    assert set(method.needs) <= NEEDS, f"needs is {set(method.needs)}; allowed: {', '.join(sorted(NEEDS))}"


def check_presets_bind_to_the_constructor(method: type[Method]) -> None:
    """A preset returns settings that the constructor takes."""
    task = problem(method).method.task
    verified = task.given[:24]
    for name, preset in method.presets.items():
        settings = preset(task)
        foreign = set(settings) - set(inspect.signature(method).parameters)
        assert not foreign, f"preset {name} has settings that {method.__name__} does not take: {sorted(foreign)}"
        method(replace(task, pairs=(verified, verified), _made=0), **settings)


def check_run_is_finite_and_well_formed(method: type[Method]) -> None:
    """Metrics are finite, `predict` returns log-probabilities, `soft_labels` probabilities or None."""
    trained, data, evaluation = problem(method)
    records = list(train(trained, data, epochs=EPOCHS, evaluation=evaluation))
    for record in records:
        broken = [name for name, value in record.metrics.items() if not np.isfinite(value)]
        assert not broken, f"every metric must be finite; not so in epoch {record.epoch}: {', '.join(broken)}"
    assert "train/loss" in records[-1].metrics, "step must return StepResult(scalars={'loss': …}, …)"
    trained.eval()
    batch = next(data.in_order())
    with torch.no_grad():
        log_probs = trained.predict(batch.inputs)
    _expect_distributions("exp(predict(inputs))", log_probs.exp(), len(batch.index))
    if (soft := trained.soft_labels(batch.index)) is not None:
        _expect_distributions("soft_labels(index)", soft, len(batch.index))
    assert isinstance(trained.deployed(), torch.nn.Module), "deployed() must return the torch.nn.Module to save"
    assert trained.relative_cost(EPOCHS - 1) >= 1, "relative_cost is in plain training steps: at least 1"


def check_step_returns_detached_tensors(method: type[Method]) -> None:
    """`step` returns 0-d scalars and log-probabilities of shape (batch, classes), all without a graph."""
    for trained, batch, clean in _first_steps(method):
        result = trained.step(batch, clean)
        shape = (len(batch.index), CLASSES)
        assert result.log_probs.shape == shape, f"log_probs are {tuple(result.log_probs.shape)}; they must be {shape}"
        assert not result.log_probs.requires_grad, "log_probs must be detached, or the history keeps every graph"
        for name, value in result.scalars.items():
            assert isinstance(value, Tensor) and value.dim() == 0, f"the scalar '{name}' must be a 0-d tensor"  # noqa: PT018
            assert not value.requires_grad, f"the scalar '{name}' must be detached"


def check_step_never_waits_for_the_device(method: type[Method]) -> None:
    """`step` reads no value and has no shape that depends on one: on a GPU the host would wait."""
    for trained, batch, clean in _first_steps(method):
        ready = iter([next(clean) for _ in range(3)])
        with _no_transfers(), _NoWaiting():  # type: ignore[no-untyped-call]
            trained.step(batch, ready)


def check_same_seed_gives_the_same_run(method: type[Method]) -> None:
    """Randomness comes from the seeded generators only."""
    first, second = (_run(problem(method)) for _ in range(2))
    assert first[0] == second[0], "two runs with the same seed must have the same metrics"
    assert same_state(first[1], second[1]), "two runs with the same seed must end with the same state_dict()"


def check_resumed_run_ends_the_same(method: type[Method]) -> None:
    """A run that is resumed from a checkpoint, inside an epoch too, ends as the uninterrupted one, to the bit."""
    whole, data, evaluation = problem(method)
    with tempfile.TemporaryDirectory() as folder:
        saved: list[Path] = []

        def after_step(position: Position) -> None:
            if (position.epoch * STEPS + position.step) % 10 == 3:
                saved.append(Path(folder) / f"epoch {position.epoch}, step {position.step}")
                save_state(saved[-1], {"method": dict(whole.state_dict()), "position": position.state_dict()})

        records = train(whole, data, epochs=EPOCHS, evaluation=evaluation, after_step=after_step)
        metrics = [record.metrics for record in records]
        for path in saved:
            resumed, data, evaluation = problem(method)
            position = Position(PredictionHistory(resumed.task.given, CLASSES))
            state = load_state(path)
            resumed.load_state_dict(state["method"])
            position.load_state_dict(state["position"])
            first = position.epoch
            rest = train(resumed, data, epochs=EPOCHS, position=position, evaluation=evaluation)
            contract = (
                f"a run resumed at {path.name} must end as the uninterrupted one. begin_epoch is not called again "
                "inside an epoch: what it sets must be part of the state (a buffer, module, kept optimizer, or extra())"
            )
            assert [record.metrics for record in rest] == metrics[first:], contract
            assert same_state(resumed.state_dict(), whole.state_dict()), contract


def check_learning_rates_follow_the_schedule(method: type[Method]) -> None:
    """Optimizers made by `add_optimizer` follow the task's schedule, unless the method has one of its own."""
    trained = problem(method).method
    own = trained.schedule is not trained.task.schedule
    for progress, expected in ((0.0, 1.0), (0.3, 1.0), (0.6, 0.1), (0.95, 0.1)):
        trained.set_progress(int(progress * EPOCHS), progress)
        rate = trained.learning_rate()
        if own:
            assert 0 < rate < 1, f"the learning rate is {rate} at {progress:.0%} of the run"
        else:
            assert np.isclose(rate, LEARNING_RATE * expected), (
                f"the learning rate is {rate} at {progress:.0%} of the run; the schedule asks for "
                f"{LEARNING_RATE * expected}. Make optimizers with add_optimizer, or set self.schedule"
            )


def check_it_learns_digits(method: type[Method]) -> None:
    """With a fifth of the labels of the digits wrong, test accuracy is above 60 % after 9 epochs."""
    data = digits(seed=0)
    assert data.test is not None
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
        schedule=cosine,
        noise_rate=0.2,
        transition=given.realised.float(),
    )
    evaluation = Evaluation(splits, Samples(data.test.store, torch.arange(len(data.test)), data.test.label))
    *_, record = train(method(task), splits, epochs=EPOCHS, evaluation=evaluation)
    accuracy = record.metrics["test/accuracy"]
    assert accuracy > 0.6, (
        f"test accuracy on digits is {accuracy:.1%}; with a fifth of the labels wrong it is above 60 %"
    )


def check_missing_clean_samples_are_asked_for(method: type[Method]) -> None:
    """A method that needs a clean set says so when there is none; one that does not can do without."""
    trained, data, _ = problem(method)
    said = ""
    try:
        for _ in train(trained, replace(data, clean=None), epochs=EPOCHS):
            pass
    except ValueError as error:
        if "clean set" not in method.needs:
            raise
        said = str(error) or "nothing"
    if "clean set" in method.needs:
        assert said, f"{method.__name__} trains without clean samples: take 'clean set' out of needs"
        contract = "without clean samples the error must say what to pass: take them from next(clean), which raises it"
        assert "pass clean=" in said, f"{contract}; it says: {said}"


METHOD_CHECKS: tuple[Callable[[type[Method]], None], ...] = (
    check_constructor_is_a_schema,
    check_presets_bind_to_the_constructor,
    check_step_returns_detached_tensors,
    check_step_never_waits_for_the_device,
    check_run_is_finite_and_well_formed,
    check_same_seed_gives_the_same_run,
    check_resumed_run_ends_the_same,
    check_learning_rates_follow_the_schedule,
    check_it_learns_digits,
    check_missing_clean_samples_are_asked_for,
)


def _run(of: Problem) -> tuple[list[dict[str, float]], dict[str, Any]]:
    metrics = [record.metrics for record in train(of.method, of.data, epochs=EPOCHS, evaluation=of.evaluation)]
    return metrics, of.method.state_dict()


def _first_steps(method: type[Method]) -> Iterator[tuple[Method, Batch, Iterator[Batch]]]:
    """The method before the first step of each epoch."""
    trained, data, _ = problem(method)
    for epoch in range(EPOCHS):
        trained.set_progress(epoch, epoch / EPOCHS)
        trained.begin_epoch(epoch, data)
        yield trained, next(data.batches(epoch)), data.clean_batches(epoch)
        trained.end_epoch(epoch, data)


def _expect_distributions(name: str, rows: Tensor, samples: int) -> None:
    assert rows.shape == (samples, CLASSES), f"{name} has shape {tuple(rows.shape)}; it must be {(samples, CLASSES)}"
    assert torch.allclose(rows.sum(1), torch.ones(samples), atol=1e-4), f"the rows of {name} must sum to 1"


@contextmanager
def _no_transfers() -> Iterator[None]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("step must not move a tensor to the host")

    with ExitStack() as stack:
        for transfer in ("cpu", "numpy", "tolist", "cuda"):
            stack.enter_context(mock.patch.object(torch.Tensor, transfer, refuse))
        yield


class _NoWaiting(TorchDispatchMode):
    """Fails on anything that would make a GPU's host wait: reading values, or shapes that depend on them."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique", "_unique2", "item")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put", "index_put_") and any(
            isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1]
        )
        if (name in self.WAITING or by_mask) and not _inside_an_optimizer():
            raise AssertionError(f"step must not wait for the device; it calls {func}")
        return func(*args, **(kwargs or {}))


def _inside_an_optimizer() -> bool:
    """Adam reads its step counters, which are on the host anyway."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and "torch/optim" not in Path(frame.f_code.co_filename).as_posix():
        frame = frame.f_back
    return frame is not None

"""Small problems for the tests of single methods, and checks that several of them share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mslg.data.batch import Batch
from mslg.data.make_splits import make_splits
from mslg.data.source import make_source
from mslg.data.splits import Splits
from mslg.training.loop import Position, train
from mslg.training.method import Method, Task
from mslg.training.prediction_history import PredictionHistory
from tests.support.blobs import blobs, same_state, small_network

# The shared example of the formulas: logits of two samples, and their given labels.
LOGITS = torch.tensor([[2.0, 1.0, 0.1], [0.0, -1.0, 3.0]], dtype=torch.float64)
GIVEN = torch.tensor([0, 1])

Problem = tuple[Method, Splits]


def plain_network() -> nn.Module:
    """Without dropout: two of them in one method draw the same random numbers as each alone, namely none."""
    return nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def problem(
    *, epochs: int = 6, clean: int | None = 24, network: Any = small_network, rate: float = 0.3, **settings: Any
) -> tuple[Task, Splits]:
    """Blobs with wrong labels. A number of clean samples is drawn apart from the noisy ones."""
    data = blobs(clean=clean or 0, rate=rate)
    noisy = make_source(data.x, data.given, true_labels=data.true)
    verified = make_source(data.clean_x, data.clean_y) if clean else None
    splits = make_splits(noisy, verified, batch_size=32, clean_batch_size=8, seed=3)
    return Task(noisy.label, 4, network, epochs, 32, **{"optimizer": sgd, "seed": 3, **settings}), splits


def identity_task(**settings: Any) -> Task:
    """A network that returns its inputs as logits, and plain descent at rate 1."""

    def network() -> nn.Module:
        layer = nn.Linear(3, 3, bias=False).double()
        layer.weight.data = torch.eye(3, dtype=torch.float64)
        return layer

    descent = lambda parameters: torch.optim.SGD(parameters, lr=1.0)  # noqa: E731
    return Task(GIVEN, 3, network, 9, 2, **{"optimizer": descent, **settings})


def example(order: tuple[int, ...] = (0, 1)) -> Batch:
    """The shared example as a batch for a network that is the identity."""
    index = torch.tensor(order)
    return Batch(index, LOGITS[index], GIVEN[index])


def no_clean() -> Iterator[Batch]:
    """For methods that must not ask for clean samples."""
    return iter(())


def run(method: Method, data: Splits, epochs: int | None = None) -> list[dict[str, float]]:
    """Train to the end (or for some epochs) and return the metrics."""
    records = train(method, data, epochs=method.task.epochs)
    return [record.metrics for record in itertools.islice(records, epochs)]


def accuracy(method: Method) -> float:
    """On new samples."""
    data = blobs(clean=0)
    method.eval()
    with torch.no_grad():
        predicted = method.predict(torch.as_tensor(data.test_x)).argmax(1)
    return float((predicted == torch.as_tensor(data.test_y)).double().mean())


def check_resume(build: Callable[[], Problem], stop: int) -> None:
    """A run that is interrupted after `stop` steps and goes on in a new process ends as the uninterrupted one."""

    class Stop(Exception):
        pass

    whole, data = build()
    expected = run(whole, data)
    interrupted, data = build()
    saved: dict[str, Any] = {}
    counter = itertools.count(1)

    def after_step(position: Position) -> None:
        if next(counter) == stop:
            saved.update(deepcopy({"method": interrupted.state_dict(), "position": position.state_dict()}))
            raise Stop

    with pytest.raises(Stop):
        list(train(interrupted, data, epochs=interrupted.task.epochs, after_step=after_step))
    resumed, data = build()
    position = Position(PredictionHistory(resumed.task.given, resumed.task.classes))
    resumed.load_state_dict(saved["method"])
    position.load_state_dict(saved["position"])
    records = [record.metrics for record in train(resumed, data, epochs=resumed.task.epochs, position=position)]
    assert records == expected[-len(records) :]
    assert same_state(resumed.state_dict(), whole.state_dict())


class NoHost(TorchDispatchMode):
    """Refuses operations that would wait for a device or fetch something from it."""

    refused = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "equal", "is_nonzero")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in self.refused, f"{name} inside a step"
        if name in ("index", "index_put", "index_put_"):
            chosen = [index for index in args[1] if isinstance(index, Tensor)]
            assert all(index.dtype == torch.int64 for index in chosen), "a mask as an index"
        return func(*args, **(kwargs or {}))


def check_step(method: Method, data: Splits, epoch: int = 0) -> None:
    """A step in this epoch never waits for a device, and hands out only detached tensors."""
    method.set_progress(epoch, epoch / method.task.epochs)
    clean = data.clean_batches(epoch) if data.clean is not None else no_clean()
    batch = next(iter(data.batches(epoch)))
    ready = iter([next(clean) for _ in range(2)]) if data.clean is not None else no_clean()
    method.step(batch, ready)  # the first one makes the optimizer's state
    ready = iter([next(clean) for _ in range(2)]) if data.clean is not None else no_clean()
    with NoHost():
        result = method.step(batch, ready)
    assert not result.log_probs.requires_grad
    assert result.log_probs.shape == (len(batch.label), method.task.classes)
    for name, value in result.scalars.items():
        assert value.shape == (), name
        assert not value.requires_grad, name
        assert torch.isfinite(value), name

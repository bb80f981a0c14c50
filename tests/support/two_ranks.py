"""Run by torchrun: trains methods in two processes, then in one that is fed the union of their batches, and prints by
how much the two differ.

    torchrun --nproc-per-node 2 -m tests.support.two_ranks mslg elr
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from mslg.data.batch import Batch
from mslg.data.make_splits import make_splits
from mslg.data.samples import Samples
from mslg.data.source import make_source
from mslg.data.splits import Splits
from mslg.methods import METHODS
from mslg.methods.cross_fitted import ridge
from mslg.runtime import distributed
from mslg.training.loop import Position, train
from mslg.training.method import Method, Task
from mslg.training.prediction_history import PredictionHistory
from mslg.training.schedules import Steps
from tests.support.blobs import blobs

EPOCHS, STEPS, BATCH = 9, 6, 24
VARIANTS: dict[str, dict[str, Any]] = {  # settings under which something global to a batch is used
    "meta-weight-net": {"normalize": True},
    "forward": {"matrix": "anchors"},
    "joint-optimization": {"prior": "given"},
    "cross-fitted": {"mixup": False, "label_rate": 0.3},  # mixup mixes samples of one process only
    "dividemix": {"mixup_alpha": 0.0},  # likewise
}


class Double(nn.Module):
    """A network in double precision, without batch norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4)).double()

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.layers(inputs.double())
        return logits


class Normalised(nn.Module):
    """The same with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4)).double()

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.layers(inputs.double())
        return logits


class Union(Splits):
    """What one process must be fed to see what the ranks see together."""

    def batches(self, epoch: int, *, start: int = 0, excluded: Tensor | None = None) -> Iterator[Batch]:
        parts = [Splits.batches(replace(self, rank=rank, ranks=2), epoch, excluded=excluded) for rank in range(2)]
        for pair in zip(*parts, strict=True):
            yield Batch(*(torch.cat([getattr(part, name) for part in pair]) for name in ("index", "inputs", "label")))


def problem(name: str) -> tuple[Method, Splits]:
    """A method by name; with a `+` before it, with batch norm over all ranks; with `by class` or `by weight` after it,
    with samples drawn so; with `by regression`, with regressions alone."""
    name, _, drawn = name.partition(" by ")
    normalised, name = name.startswith("+"), name.removeprefix("+")
    data = blobs(samples=STEPS * BATCH + 1)  # one more than can be dealt evenly
    noisy = make_source(data.x, data.given, true_labels=data.true)
    parts = make_splits(noisy, make_source(data.clean_x, data.clean_y), batch_size=BATCH, clean_batch_size=8, seed=1)
    parts = replace(parts, class_balance=drawn == "class")
    if drawn == "weight":
        parts = replace(parts, weights=1.0 + 4.0 * (noisy.label == 0) + torch.arange(len(noisy)) % 3)
    held_out = Samples(make_source(data.test_x, data.test_y).store, torch.arange(40), torch.as_tensor(data.test_y[:40]))
    task = Task(
        noisy.label,
        4,
        Normalised if normalised else Double,
        EPOCHS,
        BATCH,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4),
        schedule=Steps({0.5: 0.1}),
        noise_rate=0.3,
        transition=(0.7 * torch.eye(4) + 0.1 * (torch.ones(4, 4) - torch.eye(4))).double(),
        sync_batch_norm=normalised,
        seed=1,
    )
    alone = {"regression": True, "folds": 2, "own_weight": 0.0} if drawn == "regression" else {}
    return METHODS.load(name)(task, **VARIANTS.get(name, {}), **alone), replace(parts, select=held_out)


def trained(method: Method, data: Splits) -> dict[str, Tensor]:
    """Everything there is to compare, of all samples in order."""
    position = Position(PredictionHistory(method.task.given, 4))
    records = list(train(method, data, epochs=EPOCHS, position=position))
    own = data.own()
    order = distributed.gathered(own).argsort()
    index = own[position.history.seen(own)]
    soft = method.soft_labels(own)
    metrics = torch.tensor([record.metrics[name] for record in records for name in sorted(record.metrics)])
    found = {"metrics": metrics, "seen": torch.tensor(distributed.gathered(index).numel())}
    found |= {f"network/{name}": value for name, value in method.deployed().state_dict().items()}
    found |= {"history": distributed.gathered(position.history.mean[own])[order]}
    return found if soft is None else {**found, "labels": distributed.gathered(soft.detach())[order]}


def differences(name: str) -> dict[str, float]:
    """The largest ones between two ranks and one process: of what is trained, and of what is told in float32."""
    apart = trained(*problem(name))
    with distributed.single_process():
        method, data = problem(name)
        fields = {key: getattr(data, key) for key in data.__dataclass_fields__}
        one = trained(method, Union(**fields))
    assert apart.keys() == one.keys()
    trained_keys = [key for key in one if key.startswith("network/") or key == "labels"]
    apart_by = {key: float((apart[key].double() - one[key].double()).abs().max()) for key in one}
    return {
        "trained": max(apart_by[key] for key in trained_keys),
        "told": max(value for key, value in apart_by.items() if key not in trained_keys),
    }


def main() -> None:
    torch.set_num_threads(1)
    ridge.PRECISION = torch.float64  # as the networks are
    ridge.CHOSEN_ON = 72  # every second sample: all of one rank
    with distributed.process_group(torch.device("cpu")):
        found = {name: differences(name) for name in sys.argv[1:]}
        if distributed.is_main_process():
            print(json.dumps(found))


if __name__ == "__main__":
    main()

"""As many samples as one likes, for benchmarks of what grows with their number: inputs are made on the fly."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mslg.data.make_splits import make_splits
from mslg.data.source import Positions, Source
from mslg.data.splits import Splits
from mslg.fitting.prepare import build_method
from mslg.runs.settings import Named
from mslg.runtime.files import write_atomically
from mslg.runtime.machine import versions
from mslg.training.loop import Position
from mslg.training.method import Method, Task
from mslg.training.prediction_history import PredictionHistory

BATCH = 128
CLEAN = 2_000


def tell(found: dict[str, Any], path: Path | None) -> None:
    """Print what a benchmark has found, with the command and the machine; with a path, keep it there."""
    script, *words = sys.argv
    command = " ".join(["python", f"benchmarks/{Path(script).name}", *words])
    machine = f"{os.cpu_count()} CPU cores, {torch.get_num_threads()} thread"
    text = json.dumps({"command": command, "machine": machine, "versions": versions(), **found}, indent=1)
    print(text)
    if path is not None:
        write_atomically(path, text.encode() + b"\n")


class Generated:
    """Inputs that are made of the sample's index when they are asked for."""

    def __init__(self, samples: int, shape: tuple[int, ...]) -> None:
        self.samples, self.shape = samples, shape
        self.waves = torch.randn(torch.Size(shape).numel(), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.samples

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        for index in indices:
            phase = (index % 65_521).float().unsqueeze(1)
            yield torch.sin(phase * self.waves).view(len(index), *self.shape)


@dataclass
class Bench:
    """A method in the middle of an epoch."""

    source: Source
    data: Splits
    method: Method
    position: Position

    @classmethod
    def build(
        cls,
        samples: int,
        classes: int,
        network: Callable[[int], nn.Module],
        shape: tuple[int, ...],
        *,
        method: str = "mslg",
        preset: str | None = None,
        folder: Path | None = None,
        **settings: Any,
    ) -> Bench:
        """A network is made from the number of classes; MSLG learns labels from the first step on."""
        random = torch.Generator().manual_seed(1)
        names = tuple(f"class {number}" for number in range(classes))
        label = torch.randint(classes, (samples,), generator=random)
        source = Source(Generated(samples, shape), label, names, Positions(samples), ids_given=False)
        verified = torch.arange(CLEAN) % classes
        clean = Source(Generated(CLEAN, shape), verified, names, Positions(CLEAN), ids_given=False)
        data = make_splits(source, clean, batch_size=BATCH)
        given = torch.where(torch.rand(CLEAN, generator=random) < 0.6, verified, verified.roll(1))
        task = Task(
            given=label,
            classes=classes,
            network=lambda: network(classes),
            epochs=1,
            batch_size=BATCH,
            pairs=(given, verified),
            tables=folder,
        )
        if method == "mslg":
            # The prior that remembers the most: label table, recent predictions, and the history's mean of them.
            settings = {"prior": "matrix", "warm_up": 0, **settings}
        built = build_method(Named(method, preset, settings), task, data)
        return cls(source, data, built, Position(PredictionHistory(label, classes, folder=folder)))

    def steps(self) -> Iterator[None]:
        """One step of training each time, as the loop does it, epoch after epoch."""
        self.method.set_progress(0, 0.0)
        self.method.train()
        for epoch in count():
            clean = self.data.clean_batches(epoch)
            for batch in self.data.batches(epoch):
                result = self.method.step(batch, clean)
                self.position.history.fold(batch.index, result.log_probs)
                yield

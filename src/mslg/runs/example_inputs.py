"""A few real training inputs, kept with a run: made-up ones mask everything, or are no words of a vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from ..data.batch import Inputs, leaves, map_inputs
from ..data.splits import Splits
from ..runtime.files import write_atomically
from ..runtime.seeds import seeded

NAME = "example.safetensors"
GROUPS, SIZE = 2, 2  # batches, and samples in each: with a collate function that pads, their lengths may differ


def write_example(folder: Path, data: Splits) -> None:
    """Write the first training inputs of a run."""
    index = data.train.index[: GROUPS * SIZE]
    tensors: dict[str, Tensor] = {}
    with seeded(torch.device("cpu"), 0, "example"):  # a Dataset may change its items at random
        for number, inputs in enumerate(data.source.store.batches(list(index.split(SIZE)))):
            tensors |= {f"{number}.{place}": leaf.contiguous().clone() for place, leaf in enumerate(leaves(inputs))}
    write_atomically(folder / NAME, save(tensors))


def read_example(folder: Path, like: Inputs) -> list[Inputs]:
    """The batches in a folder, in the structure of other inputs; none if the run is older than this file."""
    if not (folder / NAME).exists():
        return []
    tensors = load_file(folder / NAME)
    numbers = sorted({name.partition(".")[0] for name in tensors})
    return [_structured(tensors, number, like) for number in numbers]


def _structured(tensors: dict[str, Tensor], number: str, like: Any) -> Inputs:
    places = iter(range(len(leaves(like))))
    return map_inputs(lambda _: tensors[f"{number}.{next(places)}"], like)

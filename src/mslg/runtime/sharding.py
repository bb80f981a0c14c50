"""How the tensors of a state are divided among processes, and how a different number of processes divides them again.

A plain tensor in a state is the same in every process. One that is not is wrapped in `PerSample` or `PerRank`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from . import distributed


@dataclass(frozen=True)
class PerSample:
    """One row per sample that this process owns."""

    kind: ClassVar[str] = "sample"
    tensor: Tensor

    @staticmethod
    def share(parts: list[Tensor]) -> Tensor:
        """This process's rows, from the rows of each process that saved them."""
        if len(parts) == distributed.ranks():
            return parts[distributed.rank()]
        samples = sum(len(part) for part in parts)
        own = torch.arange(distributed.rank(), samples, distributed.ranks())
        rows = parts[0].new_empty(len(own), *parts[0].shape[1:])
        for rank, part in enumerate(parts):
            here = own % len(parts) == rank
            rows[here] = part[own[here] // len(parts)]
        return rows


@dataclass(frozen=True)
class PerRank:
    """A sum over the samples that this process has seen."""

    kind: ClassVar[str] = "rank"
    tensor: Tensor

    @staticmethod
    def share(parts: list[Tensor]) -> Tensor:
        """An equal share of the total."""
        return torch.stack(parts).sum(0) / distributed.ranks()


Sharded = PerSample | PerRank
KINDS: dict[str, type[Sharded]] = {kind.kind: kind for kind in (PerSample, PerRank)}


def plain(state: Any) -> Any:
    """The state with every wrapped tensor unwrapped."""
    if isinstance(state, Sharded):
        return state.tensor
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    if isinstance(state, list):
        return [plain(value) for value in state]
    return state

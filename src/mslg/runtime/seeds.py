"""Randomness as a pure function of where we are: (seed, what for, epoch, step) → generator.

Nothing random has to be saved: a run resumed at any step draws what the uninterrupted run would have drawn.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive(seed: int, purpose: str, *position: int) -> int:
    """A seed for one purpose at one position."""
    entropy = [seed, zlib.crc32(purpose.encode()), *position]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]) >> 1


def generator(seed: int, purpose: str, *position: int) -> torch.Generator:
    """A torch generator for one purpose at one position."""
    return torch.Generator().manual_seed(derive(seed, purpose, *position))


def numpy_generator(seed: int, purpose: str, *position: int) -> np.random.Generator:
    """A numpy generator for one purpose at one position."""
    return np.random.default_rng(derive(seed, purpose, *position))


@contextmanager
def seeded(device: torch.device, seed: int, purpose: str, *position: int) -> Iterator[None]:
    """Layers such as dropout draw from torch's global generator: set it here, and put it back afterwards."""
    number = derive(seed, purpose, *position)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        # Not torch.manual_seed: it seeds every kind of device, and for those not in use it notes a stack trace a call.
        torch.default_generator.manual_seed(number)
        if device.type == "cuda":
            torch.cuda.manual_seed(number)
        yield

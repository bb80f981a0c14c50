"""Random generators as a pure function of (seed, purpose, epoch, step, …).

No random state has to be saved: a run resumed at any step draws the numbers of the uninterrupted run.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

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
    """A NumPy generator for one purpose at one position."""
    return np.random.default_rng(derive(seed, purpose, *position))


@contextmanager
def seeded(device: torch.device, seed: int, purpose: str, *position: int) -> Iterator[None]:
    """Seed torch's global generator, which layers such as dropout use, and restore it afterwards."""
    number = derive(seed, purpose, *position)
    before = torch.default_generator.get_state()  # torch.random.fork_rng takes twice as long, at every step
    with torch.random.fork_rng(devices=[device]) if device.type == "cuda" else nullcontext():
        # Not torch.manual_seed: it also seeds unused devices, for which it records a stack trace per call.
        torch.default_generator.manual_seed(number)
        if device.type == "cuda":
            torch.cuda.manual_seed(number)
        try:
            yield
        finally:
            torch.default_generator.set_state(before)

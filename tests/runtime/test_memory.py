"""Freed memory stays with the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import mslg

# Pages that are mapped anew while blocks of 8 MB are freed and taken again. Something small may be put into a free
# block, so that it takes a while until there are enough.
FAULTS = """
import resource, torch
from mslg.runtime.memory import keep_freed_memory
kept = keep_freed_memory()
for number in range(100):
    if number == 50:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(2**21) for _ in range(2)]
    del blocks
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**variables: str) -> tuple[bool, int]:
    unset = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    found = subprocess.run(
        [sys.executable, "-c", FAULTS], env=unset | variables, capture_output=True, text=True, check=True
    )
    kept, count = found.stdout.split()
    return bool(int(kept)), int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_a_block_is_taken_again_without_new_pages() -> None:
    kept, count = faults()
    if not kept:
        pytest.skip("the C library is not glibc")
    assert count < 50 * 2048, "at most half of the 4096 pages that two blocks have, each time"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_what_a_user_has_set_is_left_alone() -> None:
    kept, count = faults(MALLOC_MMAP_THRESHOLD_="65536")
    assert not kept
    assert count > 50 * 4000, "all of them each time"


@pytest.mark.parametrize(("recompute", "asked"), [(False, 1), (True, 0)])
def test_a_run_whose_user_is_short_of_memory_gives_it_back(
    monkeypatch: pytest.MonkeyPatch, recompute: bool, asked: int
) -> None:
    calls: list[None] = []
    monkeypatch.setattr("mslg.runs.execute.keep_freed_memory", lambda: calls.append(None))
    inputs, label = torch.randn(40, 2), torch.arange(40) % 2
    training, clean = (inputs[:30], label[:30]), (inputs[30:], label[30:])
    mslg.fit(lambda: torch.nn.Linear(2, 2), training, clean, method="mslg", epochs=2, recompute=recompute)
    assert len(calls) == asked

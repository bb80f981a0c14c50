"""Thousands of classes: no matrix of classes × classes is needed, and no time that grows with their cube."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROBLEM = """
import resource, sys
import numpy as np, torch, mslg

def problem(samples, classes, random=np.random.default_rng(0)):
    true = np.arange(samples) % classes
    return true, np.where(random.random(samples) < 0.2, random.integers(0, classes, samples), true)

def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def find(samples, classes):
    true, given = problem(samples, classes)
    probs = np.full((samples, classes), 0.2 / classes, dtype=np.float32)
    probs[np.arange(samples), true] += 0.8
    verified = np.where(np.arange(samples) < samples // 5, true, -1)
    return given != true, mslg.find_label_issues(given, probs, verified=verified)
"""
FIND = """
find(200, 10)  # what is imported and kept anyway
with open("/proc/self/statm") as file:
    used = 4096 * int(file.read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + 450 * 2**20,) * 2)  # a float32 matrix would take 549 MiB
wrong, found = find(500, 12_000)
assert set(found.indices[:50]) <= set(np.flatnonzero(wrong))
"""
FIT = """
true, given = problem(4000, 2000)
x = np.random.default_rng(0).normal(size=(2000, 16)).astype("f4")[true]
before = memory()
result = mslg.fit(lambda: torch.nn.Linear(16, 2000), (x, given), (x[:300] + 0.01, true[:300]), method="cross-entropy",
                  epochs=1, progress=False, compare=False)
assert len(result.labels) == 4000
assert memory() - before < 500 * 2**20, memory() - before
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("code", [FIND, FIT], ids=["find_label_issues", "fit"])
def test_many_classes(code: str) -> None:
    one = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}  # every thread reserves addresses of its own
    done = subprocess.run([sys.executable, "-c", PROBLEM + code], capture_output=True, text=True, env=one)
    assert done.returncode == 0, done.stderr[-2000:]

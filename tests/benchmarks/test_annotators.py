"""The simulated annotators of benchmarks/annotators.py, and the section that is made of them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import annotators
from pages.annotators import section


@pytest.mark.parametrize("name", annotators.WORLDS)
def test_votes_follow_the_matrices(name: str) -> None:
    votes, true, matrices, probs = annotators.world(name, np.random.default_rng(0))
    assert ((votes >= 0).sum(1) == annotators.VOTES).all()
    assert matrices.sum(2) == pytest.approx(1)
    assert probs.sum(1) == pytest.approx(1)
    assert 0.6 < (probs.argmax(1) == true).mean() < 0.8
    together = annotators.shares(votes, true, matrices.shape[1]).sum(0)
    assert together / together.sum(1, keepdims=True) == pytest.approx(matrices.mean(0), abs=0.1)
    assert annotators.distance(matrices, matrices) == pytest.approx(0)


def test_the_section_says_where_it_is_not_first() -> None:
    def row(method: str, right: float, error: float | None) -> dict[str, object]:
        return {"world": "ten", "seed": 0, "verified": 0, "method": method, "right": right, "matrix_error": error}

    rows = [row("majority vote", 0.7, 0.3), row("Dawid-Skene", 0.9, 0.2), row("mslg", 0.8, 0.1)]
    rows += [row("the model alone", 0.6, None), row("mslg with the model", 0.95, 0.1)]
    words = "\n".join(section(rows))
    assert "| **90.0** |" in words
    assert "not the best of the three in: ten, 0 verified (labels)." in words

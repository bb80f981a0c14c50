"""Measurements of issue lists run what is missing, and keep what is there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def noisy_sets() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import noisy_sets
    finally:
        sys.path.remove(str(BENCHMARKS))
    return noisy_sets


def cell(job: tuple[str, int], *, root: str, cache: Path, **kind: str) -> dict[str, Any]:
    """A made-up one."""
    assert cache.exists()
    if job[0] == "bad":
        raise ValueError("no such set")
    return {"set": job[0], "seed": job[1], "root": root, **kind}


def test_only_missing_cells_are_run(noisy_sets: ModuleType, tmp_path: Path) -> None:
    output = tmp_path / "deep" / "cells.json"
    options = noisy_sets.arguments_of("about", sets=["a", "b"], seeds=[1], output=output)

    def run(root: str, *words: str, **kind: str) -> list[tuple[str, int, str]]:
        arguments = options.parse_args(["--root", root, "--cache", str(tmp_path / "cache"), "-j", "1", *words])
        found = noisy_sets.run_missing(cell, arguments, **kind)
        return [(each["set"], each["seed"], each["root"]) for each in found]

    assert run("first", "--sets", "a", basis="pairs") == [("a", 1, "first")]
    assert run("second", basis="pairs") == [("a", 1, "first"), ("b", 1, "second")]
    assert run("third", "--sets", "b", basis="injected") == [("b", 1, "third")], "another kind of cell"
    with pytest.raises(ValueError, match="no such set"):
        run("fourth", "--sets", "b", "bad", "--seeds", "2", basis="pairs")
    kept = json.loads(output.read_text())
    assert [(each["set"], each["seed"], each["basis"]) for each in kept["cells"]] == [
        ("a", 1, "pairs"),
        ("b", 1, "pairs"),
        ("b", 1, "injected"),
        ("b", 2, "pairs"),
    ]
    assert "mslg" in kept["versions"]

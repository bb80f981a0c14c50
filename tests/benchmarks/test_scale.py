"""The benchmarks of very many samples run, and answer in the shape that the page of their numbers expects."""

from __future__ import annotations

import importlib
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return {name: importlib.import_module(name) for name in ("growth", "table_scale", "pages.scale")}


def test_a_page_is_filled_from_what_the_benchmarks_measure(
    loaded: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growth, table_scale, scale = loaded.values()
    monkeypatch.setattr(table_scale, "CLASSES", 20)
    monkeypatch.setattr("mslg.data.sample_table.LARGE", 60_000)
    times = table_scale.measure_time("mlp", 2_000, 20, tmp_path / "time")
    assert times.keys() == {"large", "few", "few, 10 classes"}
    assert {path.name for path in (tmp_path / "time" / "large").iterdir()} >= {"labels", "predictions"}
    memory = table_scale.measure_memory("mlp", 2_000, 2, 400, tmp_path / "memory")
    assert set(memory["exports"]) == {"100", "400"}
    about = {"machine": "a machine", "command": "a command"}
    step = {"mlp": {"steps": 2, "ms": times}}
    found = {**about, "samples": 2_000, "classes": 20, "step": step, "memory": memory}
    (tmp_path / "table_scale.json").write_text(json.dumps(found))
    axes = {"samples": growth.measure("samples", [200, 400], 1), "width": growth.measure("width", [2, 4], 1)}
    assert all(point[name] > 0 for points in axes.values() for point in points for name in growth.METHODS)
    (tmp_path / "growth.json").write_text(json.dumps({**about, "axes": axes}))
    marks = "<!-- scale: {} -->\n<!-- scale: end -->"
    text = scale.filled("\n\n".join(["before", marks.format("table"), marks.format("growth"), "after"]), tmp_path)
    assert "| MLP, 512 hidden units |" in text
    assert "| writing 400 rows of `labels.parquet` |" in text
    assert "| samples | plain step | MSLG, exact | MSLG, preset fast |" in text
    assert scale.filled(text, tmp_path) == text
    picture = ET.fromstring(scale.picture(tmp_path))
    assert len([line for line in picture.iter() if line.tag.endswith("polyline")]) == 3 + 2 * 3


def test_the_page_has_the_numbers_and_the_picture_of_the_committed_results(loaded: dict[str, ModuleType]) -> None:
    scale, docs, results = loaded["pages.scale"], BENCHMARKS.parent / "docs", BENCHMARKS / "results"
    text = (docs / "scale.md").read_text()
    again = "run python benchmarks/results_pages.py"
    assert scale.filled(text, results) == text, again
    drawn = docs / "results" / "growth.svg"
    assert drawn.exists() == (results / "growth.json").exists(), again
    assert not drawn.exists() or scale.picture(results) == drawn.read_text(), again

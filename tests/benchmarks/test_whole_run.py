"""The benchmark of whole runs, on a small problem."""

from __future__ import annotations

import pytest

from benchmarks import whole_run


def test_every_row_is_measured() -> None:
    pytest.importorskip("cleanlab")
    problem = whole_run.features(300, epochs=4)._replace(batch=64)
    problem = problem._replace(clean_inputs=problem.clean_inputs[:100], clean_label=problem.clean_label[:100])
    rows = whole_run.measured(problem, rounds=1)
    assert rows["bare loop"]["bare loops"] == 1
    assert list(rows) == list(whole_run.ROWS)
    assert {row for row, each in rows.items() if "average precision" in each} == {"fast", "default", whole_run.FOLDS}

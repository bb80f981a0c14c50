"""Tables in files: all of a run's tables there, and it ends as it would in memory; journals that stay small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from mslg.data import sample_table as rows
from mslg.data.sample_table import MappedSampleTable, SampleTable
from mslg.runs.folder import Run
from mslg.training.loop import CHECK_EVERY
from tests.support.blobs import blobs
from tests.support.fitted_blobs import fitted


@pytest.mark.parametrize("prior", ["given", "matrix"])
def test_a_run_with_all_tables_in_files_ends_as_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prior: str
) -> None:
    memory = fitted(tmp_path / "memory", method="mslg", prior=prior)
    monkeypatch.setattr(rows, "LARGE", 16)
    file = fitted(tmp_path / "file", method="mslg", prior=prior)
    made = {path.name for path in (tmp_path / "file" / "tables").iterdir() if "journal" not in path.name}
    more = {"recent_predictions"} if prior == "matrix" else set()
    assert made == {"labels", "predictions", "final_predictions", *more}
    # The mean of the predictions is float16 there: what is read off it alone may differ, what is trained may not.
    for name, weights in memory.model.state_dict().items():
        assert torch.equal(weights, file.model.state_dict()[name])
    trained = [name for name in memory.history if name.startswith(("train/", "labels/", "select/", "clean/"))]
    assert "labels/differ" in trained
    pd.testing.assert_frame_equal(memory.history[trained], file.history[trained], check_exact=True)
    pd.testing.assert_frame_equal(memory.labels, file.labels, check_exact=True)


def test_journals_are_emptied_by_an_early_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LARGE", 16)
    monkeypatch.setattr("mslg.runs.record.MOST_JOURNAL", 2_000)
    highest, saves = 0, []
    save, note = Run.save, MappedSampleTable._note

    def noted(self: MappedSampleTable, fresh: torch.Tensor) -> None:
        nonlocal highest
        note(self, fresh)
        folder = self.path.parent
        highest = max(highest, sum(path.stat().st_size for path in folder.glob("*.journal-*")))

    def saved(self: Run, method: Any, position: Any) -> None:
        saves.append(position.step)
        save(self, method, position)

    monkeypatch.setattr(MappedSampleTable, "_note", noted)
    monkeypatch.setattr(Run, "save", saved)
    fitted(tmp_path / "run", method="mslg", prior="given", epochs=2, batch_size=4)
    assert sum(step > 0 for step in saves) > 2, "some checkpoints must have come in the middle of an epoch"
    noted_a_row = 8 + 4 * 4 + 8 + 4 * 2  # in the journals of both tables
    assert highest <= 2_000 + CHECK_EVERY * 4 * noted_a_row < len(blobs().given) * noted_a_row
    assert not list((tmp_path / "run" / "tables").glob("final_predictions.journal-*"))


SCRIPT = """
import os, signal, sys
from pathlib import Path
from mslg.data import sample_table
from mslg.runs.folder import Run
from tests.support.fitted_blobs import fitted
sample_table.LARGE = 16
folder, kill_at = Path(sys.argv[1]), int(sys.argv[2])
def killed(position):
    if position.epoch == 2 and position.step == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
from mslg.runs import record
due = record._checkpoint_due
def after(learner, position, late):
    killed(position)
    return due(learner, position, position.step % 7 == 3)
record._checkpoint_due = after
fitted(folder, resume=True)
"""


@pytest.mark.parametrize("kill_at", [2, 5])
def test_a_killed_run_with_tables_in_files_goes_on_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    words = [sys.executable, "-c", SCRIPT, str(tmp_path / "killed"), str(kill_at)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    assert subprocess.run(words, env=environment, cwd=root, check=False).returncode == -signal.SIGKILL
    monkeypatch.setattr(rows, "LARGE", 16)
    again, whole = fitted(tmp_path / "killed", resume=True), fitted(tmp_path / "whole")
    pd.testing.assert_frame_equal(again.labels, whole.labels, check_exact=True)
    pd.testing.assert_frame_equal(again.history, whole.history, check_exact=True)
    for name in ("labels", "predictions"):
        left, right = ((tmp_path / run / "tables" / name).read_bytes() for run in ("killed", "whole"))
        assert left == right, name


def test_rows_are_noted_once_between_two_checkpoints(tmp_path: Path) -> None:
    table = SampleTable(100, 4, dtype=torch.float16, path=tmp_path / "table")
    table[torch.arange(10)] = torch.ones(10, 4)
    assert table.journal_bytes() == 10 * (8 + 8) == (tmp_path / "table.journal-0").stat().st_size
    table[torch.arange(5, 15)] = torch.ones(10, 4)
    assert table.journal_bytes() == 15 * 16
    table.state_dict()
    assert table.journal_bytes() == 15 * 16, "reading the state changes nothing"
    table.begin_checkpoint()
    table.end_checkpoint()
    assert table.journal_bytes() == 0
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["table", "table.journal-1"]


def test_a_table_that_can_be_made_again_has_no_journal_and_starts_empty(tmp_path: Path) -> None:
    first = SampleTable(6, 2, path=tmp_path / "table", journal=False)
    first[torch.arange(6)] = torch.ones(6, 2)
    assert list(tmp_path.iterdir()) == [tmp_path / "table"]
    assert not SampleTable(6, 2, path=tmp_path / "table", journal=False)[torch.arange(6)].any()


def test_a_table_that_is_gone_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    table = SampleTable(6, 2, path=tmp_path / "table")
    table[torch.arange(6)] = torch.ones(6, 2)
    table.begin_checkpoint()
    state = table.state_dict()
    table.end_checkpoint()
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(ValueError, match=r"is not the table that the checkpoint was taken with.*put it back"):
        SampleTable(6, 2, path=tmp_path / "table").load_state_dict(state)


def test_rows_read_in_any_order_are_those_written(tmp_path: Path) -> None:
    values = torch.randn(5_000, 3)
    table = SampleTable(5_000, 3, path=tmp_path / "table")
    table[torch.arange(5_000)] = values
    for index in (torch.randperm(5_000)[:64], torch.arange(100, 3_000), torch.empty(0, dtype=torch.int64)):
        assert torch.equal(table[index], values[index])
        assert torch.equal(table[index], values[index])

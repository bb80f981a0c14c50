"""`mslg start`: the command that follows it, and what it does not overwrite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import trees
from tests.support.command import mslg


@pytest.fixture
def here(tmp_path: Path) -> Path:
    trees.image_folder(tmp_path / "photos", each=50)
    (tmp_path / "asked.tsv").write_text(
        "question\tkind\n" + "".join(f"what is number {place}\t{'ab'[place % 2]}\n" for place in range(40))
    )
    return tmp_path


def test_the_next_command_reads_the_data_likewise(here: Path) -> None:
    words = ("start", "asked.tsv", "--text-column", "question", "--label-column", "kind", "-o", "check", "--no-serve")
    done = mslg(*words, cwd=here)
    assert done.returncode == 0, done.stderr
    following = (
        "mslg fit asked.tsv --label-column kind --text-column question --clean check/decisions.csv -o runs/first"
    )
    assert f"afterwards: {following}" in done.stderr
    assert following in (here / "check" / "report.html").read_text()


def test_a_check_that_has_begun_is_opened_again_and_not_mixed_with_another(here: Path) -> None:
    words = ("start", "photos", "-o", "check", "--no-serve")
    assert mslg(*words, cwd=here).returncode == 0
    (here / "check" / "decisions.csv").write_text("id,decision,label\n")
    assert mslg(*words, cwd=here).returncode == 0
    other = mslg(*words, "--seed", "1", cwd=here)
    assert other.returncode == 1
    assert "check has decisions about other samples or labels; continue them with mslg review check" in other.stderr


def test_the_page_of_a_run_is_not_replaced(here: Path) -> None:
    (here / "run").mkdir()
    (here / "run" / "report.html").write_text("a run's")
    done = mslg("start", "photos", "-o", "run", "--no-serve", cwd=here)
    assert done.returncode == 1
    assert "run has a page that is not of mslg start; name another folder with -o" in done.stderr
    assert (here / "run" / "report.html").read_text() == "a run's"


def test_the_folder_of_a_check_is_a_clean_set(here: Path) -> None:
    assert mslg("start", "photos", "-o", "check", "--no-serve", cwd=here).returncode == 0
    early = mslg("check", "photos", "--clean", "check", cwd=here)
    assert early.returncode == 1
    assert "check has no decisions yet; check its samples: mslg review check" in early.stderr
    (here / "check" / "decisions.csv").write_text("id,decision,label\nant/1.png,keep,ant\n")
    checked = mslg("check", "photos", "--clean", "check", cwd=here)
    assert checked.returncode == 0, checked.stderr
    assert "1 clean" in checked.stdout

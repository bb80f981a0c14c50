"""`mslg report`, and the page that `mslg fit` leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.support.blobs import blobs
from tests.support.command import mslg
from tests.support.run_folders import run_folder


def test_a_page_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    run_folder(tmp_path / "run")
    done = mslg("report", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "report: run/report.html\n")
    other = mslg("report", "run", "-o", "pages/mine.html", "--cards", "3", "--json", cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    page = tmp_path / "pages" / "mine.html"
    assert json.loads(other.stdout) == {"report": "pages/mine.html", "bytes": page.stat().st_size}
    assert page.read_text().count('"rank":') == 3


def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = mslg("report", "empty", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: empty is not a run's folder: it has no config.toml")
    assert mslg("report", "empty", "--cards", "5000", cwd=tmp_path).returncode == 2


def test_fit_ends_with_a_page_unless_told_not_to(tmp_path: Path) -> None:
    data = blobs()
    np.savez(tmp_path / "noisy.npz", X=data.x, y=data.given)
    np.savez(tmp_path / "clean.npz", X=data.clean_x, y=data.clean_y)
    words = ("fit", "noisy.npz", "--clean", "clean.npz", "--epochs", "3")
    done = mslg(*words, "-o", "with", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "review them: mslg review with (saves as you go), or open with/report.html" in done.stderr
    assert (tmp_path / "with" / "report.html").exists()
    without = mslg(*words, "-o", "without", "--no-report", cwd=tmp_path)
    assert without.returncode == 0, without.stderr
    assert "report.html" not in without.stderr
    assert not (tmp_path / "without" / "report.html").exists()

"""Files are replaced in one step, and what killed processes leave is cleaned up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mslg.runtime import files
from mslg.runtime.files import regular, replacing, replacing_folder, write_atomically


def a_dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def test_leftovers_of_dead_processes_are_removed_those_of_others_are_kept(tmp_path: Path) -> None:
    dead, machine = a_dead_process(), files._machine()
    gone = [tmp_path / f".a.csv.{machine}-{dead}-00ff.partial", tmp_path / f".a.csv.{machine}-{dead}-01ff.partial"]
    gone[0].write_bytes(b"half")
    gone[1].mkdir()
    kept = [
        tmp_path / f".a.csv.{machine}-{os.getpid()}-00ff.partial",  # still being written
        tmp_path / f".a.csv.00000000-{dead}-00ff.partial",  # on another machine
        tmp_path / f".b.csv.{machine}-{dead}-00ff.partial",  # of another file
    ]
    for path in kept:
        path.write_bytes(b"half")
    write_atomically(tmp_path / "a.csv", b"whole")
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in kept)
    assert (tmp_path / "a.csv").read_bytes() == b"whole"


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_folder_is_never_half_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_one_step: bool) -> None:
    target = tmp_path / "out"
    target.mkdir()
    for number in range(5):
        (target / f"old-{number}").touch()
    if not in_one_step:
        monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    with replacing_folder(target) as temporary:
        (temporary / "new").touch()
        assert len(list(target.iterdir())) == 5  # until the last moment
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_error_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(RuntimeError), replacing_folder(target):
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "old"]


def test_a_name_with_special_characters_is_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "a[0]*?.csv"
    with replacing(path) as temporary:
        temporary.write_bytes(b"x")
    assert path.read_bytes() == b"x"


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"pipe is a named pipe, not a regular file; copy the content into a file"):
        regular(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is a device"):
        regular(Path("/dev/null"))
    with pytest.raises(ValueError, match="is a folder"):
        regular(tmp_path)
    assert regular(tmp_path / "missing") == tmp_path / "missing"

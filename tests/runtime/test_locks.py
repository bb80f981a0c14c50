"""One process writes into a folder, and the others learn which."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mslg.runtime import locks

HOLD = """
import sys, time
from pathlib import Path
from mslg.runtime import locks
with locks.writing(Path(sys.argv[1])):
    print("held", flush=True)
    if len(sys.argv) > 2:  # a child process must not keep the lock
        import os
        if os.fork() == 0:
            os.close(0); os.close(1); os.close(2)
            time.sleep(20)
            os._exit(0)
    time.sleep(60)
"""


def holder(folder: Path, *more: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder), *more], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    process = holder(tmp_path / "run", "with a child")
    try:
        expected = (
            rf"is being written by process {process.pid} on {socket.gethostname()} \(since 20\d\d-.* \d\d:\d\d:\d\d"
        )
        with pytest.raises(locks.FolderInUse, match=expected), locks.writing(tmp_path / "run"):
            pass
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with locks.writing(tmp_path / "run") as stale:  # released by its death, though its child lives
        assert stale is not None
        assert f"process {process.pid} on" in stale
        assert "has ended without finishing" in stale
    with locks.writing(tmp_path / "run") as stale:
        assert stale is None  # the last one has ended properly


def test_a_process_excludes_itself(tmp_path: Path) -> None:
    again = locks.writing(tmp_path / ".." / tmp_path.name)
    with locks.writing(tmp_path), pytest.raises(locks.FolderInUse, match="by this process already"), again:
        pass
    with locks.writing(tmp_path):
        pass
    assert os.listdir(tmp_path) == [".lock"]  # noqa: PTH208


SLOW = """
import fcntl, json, sys, time
file = open(sys.argv[1] + "/.lock", "a+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
time.sleep(0.2)
if sys.argv[2] == "begins":
    print(json.dumps({"host": "here", "pid": 4711, "since": "now"}), file=file, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("what", ["begins", "ends"])
def test_a_holder_between_its_lock_and_its_name_is_waited_for(tmp_path: Path, what: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path), what], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        if what == "begins":
            with pytest.raises(locks.FolderInUse, match="by process 4711 on here"), locks.writing(tmp_path):
                pass
        else:
            with locks.writing(tmp_path) as stale:
                assert stale is None
    finally:
        process.kill()
        process.wait()

"""A lock on a folder, held by the process that writes into it and released by its end, however it ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

NAME = ".lock"
UNNAMED = 100  # looks, a hundredth of a second apart, at a lock whose holder has not written its name

_held: set[str] = set()  # a process does not exclude itself by a record lock


class FolderInUse(OSError):
    """Another process writes into the folder."""


@contextmanager
def writing(folder: Path) -> Iterator[str | None]:
    """Hold the lock on a folder, which is made if needed. Yields a sentence about the last holder if it has not ended
    properly.

    A record lock, not flock: worker processes do not inherit it, so it ends with this process and not with the last of
    its children. It also works on network file systems.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    key = os.path.realpath(path)
    if key in _held:
        raise FolderInUse(errno.EAGAIN, f"{folder} is being written by this process already; choose another folder")
    file = path.open("a+")
    try:
        left = _acquire(file, folder)
        _held.add(key)
        try:
            yield left
        finally:
            file.truncate(0)  # ended properly; the file stays: removing it would let two processes lock two files
    finally:
        _held.discard(key)
        file.close()


def _acquire(file: IO[str], folder: Path) -> str | None:
    tries = UNNAMED
    while not _locked(file, folder):
        tries -= 1
        holder = _holder(file)
        if holder is None and tries:  # it has just begun, or is just ending
            time.sleep(0.01)
            continue
        raise FolderInUse(
            errno.EAGAIN,
            f"{folder} is being written by {_words(holder)}; wait for it, or stop it, or choose another folder",
        )
    before = _holder(file)
    file.truncate(0)
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": now}) + "\n")
    file.flush()
    return None if before is None else f"{_words(before)} has ended without finishing {folder}; its lock was stale"


def _locked(file: IO[str], folder: Path) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise OSError(  # such as ENOLCK: the file system has no locks
            error.errno, f"{folder} cannot be locked ({error.strerror}); choose a folder elsewhere"
        ) from None
    return True


def _holder(file: IO[str]) -> dict[str, Any] | None:
    """Who has written into the lock; None if it is empty or unreadable."""
    file.seek(0)
    try:
        found = json.loads(file.read(1000))
        return found if isinstance(found, dict) else None
    except ValueError:
        return None


def _words(holder: dict[str, Any] | None) -> str:
    if holder is None:
        return "another process"
    since = str(holder.get("since", "?")).replace("T", " ")
    return f"process {holder.get('pid', '?')} on {holder.get('host', '?')} (since {since})"

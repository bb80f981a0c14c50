"""Files that several processes may write: replaced all at once, and locks to wait for."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".*.partial"  # what a process that was killed while writing leaves behind
HINT = "free some space or choose another folder, then resume"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content all at once: whoever opens it finds the old content or the new one, whole."""
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise OSError(error.errno, f"could not write {path} ({error.strerror}); {HINT}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """For content that is written piece by piece: a temporary name that becomes the file's own when all went well."""
    # A name of its own for each writer: two that shared one would mix their contents.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        yield temporary
        _to_disk(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _to_disk(path.parent)  # the new name must survive a power cut too


def _to_disk(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """The same for a folder. What had its name is deleted only when the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            shutil.rmtree(path)
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process is in here for the same file. The lock is a file beside it, which stays."""
    import fcntl

    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given up when the file is closed, also by a kill
        yield

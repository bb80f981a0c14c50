"""Files that several processes may write: replaced all at once, and locks to wait for."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".*.partial"  # what a process that was killed while writing leaves behind


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content all at once: whoever opens it finds the old content or the new one, whole."""
    # A name of its own for each writer: two that shared one would mix their contents.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        hint = "free some space or choose another folder, then resume"
        raise OSError(error.errno, f"could not write {path} ({error.strerror}); {hint}") from error
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name must survive a power cut too
    finally:
        os.close(folder)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """For content that is written piece by piece: a temporary name that becomes the file's own when all went well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process is in here for the same file. The lock is a file beside it, which stays."""
    import fcntl

    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given up when the file is closed, also by a kill
        yield

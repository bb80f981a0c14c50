"""Files that several processes may write: atomic replacement, and locks."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".*.partial"  # the files that a killed process leaves behind
HINT = "free some space or choose another folder, then resume"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the content of a file atomically: a reader gets either the old or the new content, complete."""
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise OSError(error.errno, f"could not write {path} ({error.strerror}); {HINT}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which atomically becomes `path` if no exception is raised."""
    # A unique name per writer: two that shared one would mix their contents.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        yield temporary
        _to_disk(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _to_disk(path.parent)  # the new name must survive a power failure too


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """The same for a folder. An existing one is deleted only when the new one is complete."""
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
    """Hold an exclusive lock on a file. The lock is a separate file next to it, which is not deleted."""
    import fcntl

    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, even if the process is killed
        yield

"""Files that several processes may write: atomic replacement, and what killed processes leave behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import shutil
import socket
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

PARTIAL = ".*.partial"  # the files and folders that a killed process leaves behind
HINT = "free some space or choose another folder, then resume"
EXCHANGE, HERE = 2, -100  # of renameat2: RENAME_EXCHANGE, AT_FDCWD


def regular(path: Path) -> Path:
    """The path, if it is a regular file or does not exist: a pipe would block, a device never end."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return path  # opening it gives the right error
    if not stat.S_ISREG(mode):
        kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a named pipe", stat.S_ISSOCK: "a socket"}
        what = next((words for test, words in kinds.items() if test(mode)), "a device")
        raise ValueError(f"{path} is {what}, not a regular file; copy the content into a file")
    return path


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
    remove_leftovers(path)
    temporary = _temporary(path)
    try:
        yield temporary
        _to_disk(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _to_disk(path.parent)  # the new name must survive a power failure too


def keep_as(path: Path, name: Path) -> None:
    """Keep a file under another name too, before it is replaced; on the same file system this copies nothing."""
    if not path.exists():
        return
    with replacing(name) as temporary:
        try:
            os.link(path, temporary)
        except OSError:  # such as FAT
            shutil.copyfile(path, temporary)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """The same for a folder: the old and the new one change places in one step, then the old one is deleted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        yield temporary
        if path.is_dir() and any(path.iterdir()):
            _exchange(temporary, path)
        else:
            temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(path: Path) -> None:
    """Delete what processes of this machine that are gone have left of this file or folder."""
    for left in path.parent.glob(f".{glob_safe(path.name)}.*.partial"):
        found = re.fullmatch(r"(\w{8})-(\d+)-\w+", left.name[len(path.name) + 2 : -len(".partial")])
        if found and found[1] == _machine() and not _is_running(int(found[2])):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def glob_safe(name: str) -> str:
    """A name in which no character has a meaning for `glob`."""
    return re.sub(r"([*?\[])", r"[\1]", name)


def _temporary(path: Path) -> Path:
    """A name of its own for every writer, as two that shared one would mix their contents; it says whose it is."""
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.partial")


@cache
def _machine() -> str:
    """This machine, or the container within it: process numbers mean nothing elsewhere."""
    names = socket.gethostname()
    with contextlib.suppress(OSError):
        names += str(Path("/proc/self/ns/pid").readlink())
    return f"{zlib.crc32(names.encode()):08x}"


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _exchange(new: Path, old: Path) -> None:
    """Two folders change names. Where the system cannot do that in one step, the old one is moved away first."""
    libc = ctypes.CDLL(None, use_errno=True)
    rename = getattr(libc, "renameat2", None)
    if rename is not None and rename(HERE, os.fsencode(new), HERE, os.fsencode(old), EXCHANGE) == 0:
        return
    away = _temporary(old)
    old.replace(away)
    new.replace(old)
    shutil.rmtree(away, ignore_errors=True)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file. The lock is a separate file next to it, which is not deleted."""
    import fcntl

    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, even if the process is killed
        yield

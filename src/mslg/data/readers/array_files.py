"""Arrays from .npz and .npy files: plain ones only, and never more than the file can account for."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from ...runtime.files import regular
from ..checksum import crc_of_rest

FREE = 2**30  # bytes: arrays up to this size may be compressed to any degree
MOST_RATIO = 200  # beyond, an archive that holds more than this times its own size is refused

Array = np.ndarray[Any, np.dtype[Any]]


def read_npz(path: Path) -> dict[str, Array]:
    """All arrays of an archive. Arrays of objects are refused: reading them would run code from the file.

    Raises:
        ValueError: with the file, the array and what is wrong with it.
    """
    return read_npz_with_checksums(path)[0]


def read_npz_with_checksums(path: Path) -> tuple[dict[str, Array], dict[str, int]]:
    """All arrays of an archive, and the CRC-32 of the bytes of those that are stored as they are used. It follows from
    the archive's own, which reading has compared anyway."""
    regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
            size = sum(entry.file_size for entry in members)
            refuse_bomb(path, size)
            arrays: dict[str, Array] = {}
            sums: dict[str, int] = {}
            for entry in members:
                name = entry.filename.removesuffix(".npy")
                if name in arrays:
                    raise ValueError(f"it has the array {name} twice")
                with archive.open(entry) as file:
                    arrays[name] = _read_npy(file, entry.file_size, name)
                if (header := entry.file_size - arrays[name].nbytes) >= 0 and arrays[name].flags.c_contiguous:
                    with archive.open(entry) as file:
                        sums[name] = crc_of_rest(entry.CRC, file.read(header), arrays[name].nbytes)
            return arrays, sums
    except FileNotFoundError:
        raise
    except (ValueError, OSError, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
        raise _unreadable(path, error) from error
    except (zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, error) from error


def read_npy(path: Path, *, mapped: bool = False) -> Array:
    """The array of an .npy file, in memory, or mapped and read where it is used."""
    size = regular(path).stat().st_size
    with path.open("rb") as file:
        if not mapped:
            return _read_npy(file, size, path.name)
        shape, fortran, dtype = _read_header(file, size, path.name)
        if 0 in shape:
            return np.empty(shape, dtype=dtype)
        return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")


def refuse_bomb(path: Path, size: int) -> None:
    """Raise if a file holds much more than it takes on disk: nobody's data compresses to a thousandth."""
    most = max(FREE, MOST_RATIO * path.stat().st_size)
    if size > most:
        raise ValueError(
            f"it holds {size:,} bytes of data in a file of {path.stat().st_size:,}; more than {MOST_RATIO} times its "
            f"size is taken for an attack on your memory, beyond {FREE:,} bytes: save it uncompressed if it is yours"
        )


def _read_header(file: Any, size: int, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array, compared with the number of bytes that there are."""
    try:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"format {version} is not known")
        shape, fortran, dtype = read_header[version](file)
    except (ValueError, EOFError, SyntaxError, TokenError, MemoryError, RecursionError) as error:
        raise ValueError(f"the array {name} has no valid header ({error})") from error
    if dtype.hasobject:
        raise ValueError(
            f"the array {name} holds Python objects, and reading those would run code; convert it to numbers or text: "
            f"{name}.astype(str) or {name}.astype(float)"
        )
    count = math.prod(shape)
    needed = count * dtype.itemsize
    if count < 0 or needed > size - file.tell():
        raise ValueError(f"the array {name} claims the shape {shape}, {needed:,} bytes, and has fewer: it is cut short")
    return shape, fortran, dtype


def _read_npy(file: Any, size: int, name: str) -> Array:
    shape, fortran, dtype = _read_header(file, size, name)
    count = math.prod(shape)
    needed = count * dtype.itemsize
    content = bytearray(needed)
    done, view = 0, memoryview(content)
    while done < needed:
        read = file.readinto(view[done:])
        if not read:
            raise ValueError(f"the array {name} ends after {done:,} of {needed:,} bytes: it is cut short")
        done += read
    file.read()  # to the end: a damaged member is noticed by its checksum
    flat: Array = np.frombuffer(content, dtype=dtype, count=count) if needed else np.empty(count, dtype=dtype)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{path} cannot be read as an .npz of plain arrays ({error}); "
        "save it with numpy.savez(path, X=inputs, y=labels), labels as numbers or text"
    )

"""Features on disk by content: a row per picture that a backbone has seen, whatever its file is called now.

A file holds the rows of one backbone and one preparation. Rows are appended while they are computed, so a killed
extraction continues where it was, and a folder with new or moved files costs only what is new. A row that was cut off
or damaged is computed again.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.files import locked

log = logging.getLogger("mslg")

DIGEST = 16  # bytes of a content's digest
HEADER = struct.Struct("<8sII")  # magic, format version, width
MAGIC, FORMAT = b"mslgfeat", 1

Digests = np.ndarray[Any, np.dtype[np.void]]
Rows = np.ndarray[Any, np.dtype[np.float32]]


class FeatureCache:
    """The rows in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, digests: Digests) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Rows | None]:
        """The position of each content's row, −1 where there is none, and all rows, memory-mapped."""
        records = self._records()
        positions = np.full(len(digests), -1, dtype=np.int64)
        if records is None or not len(records):
            return positions, None
        place = {bytes(digest): number for number, digest in enumerate(records["digest"])}
        for number, digest in enumerate(digests):
            positions[number] = place.get(bytes(digest), -1)
        used = np.unique(positions[positions >= 0])
        damaged = [number for number in used.tolist() if _checksum(records[number]) != records[number]["crc"]]
        if damaged:
            log.warning("%d rows of %s are damaged and are computed again", len(damaged), self.path)
            positions[np.isin(positions, damaged)] = -1
        return positions, records["row"]

    def append(self, digests: Digests, rows: Rows) -> None:
        """Add rows; what an interrupted writer left of a row is cut off first."""
        records = np.zeros(len(rows), dtype=_record(rows.shape[1]))
        records["digest"], records["row"] = digests, rows
        records["crc"] = [_checksum(record) for record in records]
        with locked(self.path), self.path.open("a+b") as file:
            if not file.tell():
                file.write(HEADER.pack(MAGIC, FORMAT, rows.shape[1]))
            elif (torn := (file.tell() - HEADER.size) % records.dtype.itemsize) != 0:
                file.truncate(file.tell() - torn)
            file.write(records.tobytes())
            file.flush()
            os.fsync(file.fileno())

    def _records(self) -> np.ndarray[Any, Any] | None:
        try:
            with self.path.open("rb") as file:
                magic, version, width = HEADER.unpack(file.read(HEADER.size))
        except FileNotFoundError:
            return None
        except struct.error:
            magic, version, width = b"", 0, 0
        kind = _record(width)
        count = (self.path.stat().st_size - HEADER.size) // kind.itemsize
        if (magic, version) != (MAGIC, FORMAT) or not width:
            log.warning("%s is damaged and is computed again", self.path)
            self.path.unlink()
            return None
        return np.memmap(self.path, kind, "c", HEADER.size, (count,)) if count > 0 else None


def _record(width: int) -> np.dtype[Any]:
    return np.dtype([("digest", f"V{DIGEST}"), ("crc", "<u4"), ("row", "<f4", (width,))])


def _checksum(record: Any) -> int:
    return zlib.crc32(record["row"].tobytes(), zlib.crc32(bytes(record["digest"])))

"""Decoded images on disk, for sets that do not fit into memory and are read in every epoch.

A file holds a record per image of a set, at a fixed place, so that several processes can fill it. A record is used only
if it was made from the very content that the image file has now, and is complete: the file is still read each time, and
only decoding it is saved.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import PIL

from .images import Frame, Pixels

log = logging.getLogger("mslg")

FORMAT = 1  # another one if the same file would be decoded differently
LIMIT = 8.0  # gigabytes on disk, of all sets together
SETTING = "MSLG_PIXEL_CACHE"  # the environment variable for another limit
RECORD = struct.Struct("<III")  # size and CRC-32 of the image file, CRC-32 of the pixels


class PixelCache:
    """The records of one set of images, all of the same shape."""

    def __init__(self, path: Path, shape: tuple[int, int, int]) -> None:
        self.path, self.shape = path, shape
        self.size = RECORD.size + int(np.prod(shape))
        self._file: int | None = None
        self._full = False

    @classmethod
    def of(cls, folder: Path, paths: Any, root: Path, frame: Frame, channels: int) -> PixelCache | None:
        """The cache of these images in a folder; None where there is not enough room for it."""
        digest = hashlib.blake2b(digest_size=12)
        for part in (FORMAT, PIL.__version__, root.resolve(), frame, channels):
            digest.update(f"{part}\0".encode())
        for chunk in paths.chunks if hasattr(paths, "chunks") else [paths]:
            digest.update("\0".join(chunk.to_pylist()).encode(errors="surrogateescape") + b"\0")
        cache = cls(folder / f"{digest.hexdigest()}.pixels", (channels, frame.height, frame.width))
        needed, allowed = len(paths) * cache.size, limit()
        if needed > allowed:
            if allowed:
                log.info(
                    "images are decoded in every epoch: %.1f GB of pixels are more than the %.1f GB that may be kept "
                    "on disk (%s=%d allows it)",
                    needed / 1e9,
                    allowed / 1e9,
                    SETTING,
                    -(-needed // 10**9),
                )
            return None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _make_room(cache.path, allowed - needed)
            own = cache.path.stat().st_blocks * 512 if cache.path.exists() else 0
            if needed - own > shutil.disk_usage(folder).free / 2:
                return None
            cache.path.touch()  # it was used last
        except OSError:
            return None
        log.info("decoded images are kept in %s (up to %.1f GB; %s=0 for none)", cache.path, needed / 1e9, SETTING)
        return cache

    def get(self, row: int, size: int, checksum: int) -> Pixels | None:
        """The pixels of a row, if they were made from a file of this size and CRC-32."""
        record = os.pread(self._opened(), self.size, row * self.size)
        if len(record) < self.size:
            return None
        pixels = np.frombuffer(record, np.uint8, offset=RECORD.size)
        if RECORD.unpack_from(record) != (size & 0xFFFFFFFF, checksum, crc32(pixels.data)):
            return None
        return pixels.reshape(self.shape)

    def put(self, row: int, size: int, checksum: int, pixels: Pixels) -> None:
        """Keep the pixels of a row. Where the disk is full, nothing more is kept."""
        if self._full:
            return
        record = RECORD.pack(size & 0xFFFFFFFF, checksum, crc32(content := pixels.tobytes())) + content
        try:
            os.pwrite(self._opened(), record, row * self.size)  # a part of a record does not match its CRC-32
        except OSError as error:
            self._full = True
            log.warning("no more decoded images are kept in %s (%s)", self.path, error.strerror)

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._file

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_file": None}  # each process opens the file itself

    def __del__(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)


def limit() -> float:
    """Bytes of decoded images that may be on disk."""
    given = os.environ.get(SETTING, "").strip()
    try:
        return float(given or LIMIT) * 1e9 if hasattr(os, "pread") else 0.0
    except ValueError:
        raise ValueError(f"{SETTING} is '{given}'; it must be a number of gigabytes, 0 for no cache") from None


def _make_room(mine: Path, allowed: float) -> None:
    """Remove the caches of other sets, those not used for longest first, until they take no more than allowed."""
    others = [(file.stat(), file) for file in mine.parent.glob("*.pixels") if file != mine]
    total = sum(status.st_blocks * 512 for status, _ in others)
    for status, file in sorted(others, key=lambda other: other[0].st_mtime):
        if total <= allowed:
            return
        with suppress(OSError):
            file.unlink()
        total -= status.st_blocks * 512

"""Open many image files at once: check them, find their common frame, decode small sets into memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch

from ...runtime.time_left import TimeLeft
from ..image_stores import ImageStore, MemoryImages, default_workers
from ..images import SHORT_SIDE, SIZE, Frame, Unreadable, look, read
from .options import Reading

log = logging.getLogger("mslg")

IN_MEMORY = 256 * 2**20  # bytes of pixels: smaller sets are decoded once
CHECKED = 20_000  # files: in smaller sets every file is checked when the set is opened
SAMPLED = 1_000  # files that are checked in larger sets
AT_ONCE = 512  # files handed to the threads together: as many images are in memory twice
SHOWN = 10  # unreadable files named in a message

Result = TypeVar("Result")
Positions = np.ndarray[Any, np.dtype[np.int64]]


def open_images(
    paths: Any, folder: Path, reading: Reading, *, name: str, confined: bool = False
) -> tuple[ImageStore | MemoryImages, Positions]:
    """Open image files.

    Args:
        paths: (images,) paths below the folder.
        folder: where the paths start.
        reading: how to read them.
        name: what to call the data in messages.
        confined: whether to refuse paths that lead out of the folder.

    Returns:
        The images, and their positions in `paths`: all of them, or with corrupt="skip" the readable ones.
    """
    listed = pa.array(paths, pa.large_string())
    kept = np.arange(len(listed), dtype=np.int64)
    if reading.corrupt == "keep":
        frame = reading.frame or Frame(SIZE, SIZE, SHORT_SIDE / SIZE)
        return ImageStore(listed, folder, frame, channels=reading.channels, confined=confined), kept
    inside = folder if confined else None
    everything = len(listed) <= CHECKED or reading.corrupt == "skip"
    checked = kept if everything else np.unique(np.linspace(0, len(listed) - 1, SAMPLED).astype(np.int64))
    if len(listed) > CHECKED:
        log.info("%s: checking %d of %d image files", name, len(checked), len(listed))
    workers = default_workers() if reading.workers is None else reading.workers
    sizes, unreadable = set(), {}
    looks = _each(lambda at: look(folder / listed[at].as_py(), inside), checked, f"{name}: checking files", workers)
    for position, size in zip(checked.tolist(), looks, strict=True):
        if isinstance(size, Unreadable):
            unreadable[position] = size
        else:
            sizes.add(size)
    kept = _readable(kept, unreadable, len(checked), reading.corrupt, name)
    frame = reading.frame or Frame.fit(sizes, reading.size)
    store = ImageStore(listed, folder, frame, channels=reading.channels, workers=workers, confined=confined)
    if len(kept) * reading.channels * frame.height * frame.width > IN_MEMORY:
        return store.at(kept), kept
    pixels = torch.empty((len(kept), reading.channels, frame.height, frame.width), dtype=torch.uint8)
    unreadable = {}
    images = _each(
        lambda at: read(store.path(at), frame, reading.channels, inside), kept, f"{name}: decoding images", workers
    )
    for row, (position, image) in enumerate(zip(kept.tolist(), images, strict=True)):
        if isinstance(image, Unreadable):
            unreadable[position] = image
        else:
            pixels[row] = torch.from_numpy(image)
    if unreadable:
        good = torch.from_numpy(~np.isin(kept, list(unreadable)))
        kept, pixels = _readable(kept, unreadable, len(kept), reading.corrupt, name), pixels[good]
    return MemoryImages(pixels, listed.take(pa.array(kept)), folder, frame), kept


def _each(act: Callable[[int], Result], positions: Positions, title: str, threads: int) -> Iterator[Result]:
    """What comes of each position, in order. By several threads: Pillow decodes without the interpreter's lock."""
    shown = TimeLeft(title, len(positions))
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for start in range(0, len(positions), AT_ONCE):
            chunk = positions[start : start + AT_ONCE].tolist()
            yield from pool.map(act, chunk)
            shown.advance(len(chunk))


def _readable(
    positions: Positions, unreadable: dict[int, Unreadable], count: int, corrupt: str, name: str
) -> Positions:
    if not unreadable:
        return positions
    if corrupt == "error":
        raise ValueError(_unreadable_message(list(unreadable.values()), count, name))
    if len(unreadable) == count:
        first = next(iter(unreadable.values()))
        raise ValueError(
            f"none of the {count} image files of {name} can be read; the first is {first.path} ({first.reason}): "
            "check the folder"
        )
    log.warning("%s: skipping %d of %d image files that cannot be read", name, len(unreadable), count)
    return positions[~np.isin(positions, list(unreadable))]


def _unreadable_message(unreadable: Sequence[Unreadable], count: int, name: str) -> str:
    """How many of `count` files cannot be read, and the first of them."""
    shown = "".join(f"\n  {file.path} ({file.reason})" for file in unreadable[:SHOWN])
    more = f"\n  and {len(unreadable) - SHOWN} more" if len(unreadable) > SHOWN else ""
    return (
        f"{len(unreadable)} of {count} image files of {name} cannot be read; fix or remove them, or skip them with "
        f'corrupt="skip" (--corrupt skip):{shown}{more}'
    )

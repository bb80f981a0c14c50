"""Images in files: decoded by worker processes when they are needed, or once into memory when they are few."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader

from ..registry import expect_name
from ..runtime.machine import processors
from .source import InputStore, TensorStore
from .texts import WORDS, Vocabulary

log = logging.getLogger("mslg")

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
IN_MEMORY = 256 * 2**20  # bytes of pixels: sets up to this size are decoded once
LOOKED_AT = 20_000  # files: sets up to this size are looked at file by file when they are opened
SAMPLED = 1_000  # files looked at in larger sets
SHOWN = 10  # unreadable files named in a message
SIZE, SHORT_SIDE = 224, 256  # the paper's: short side to 256, the middle 224 × 224 of it
CORRUPT = ("error", "skip", "keep")  # "keep" is for `mslg check`, which looks for itself

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class Frame(NamedTuple):
    """What every image becomes: scaled until it covers height × width times the margin, then cut in the middle."""

    height: int
    width: int
    margin: float = 1.0


@dataclass(frozen=True)
class Reading:
    """How inputs are read. `size` is the side of a square; without it images of one common size stay as they are and
    others become 224 × 224. `corrupt` says what to do about files that are no readable image."""

    size: int | None = None
    channels: int = 3
    corrupt: str = "error"
    workers: int | None = None  # processes; None: as many as there are processors, up to 4
    frame: Frame | None = None  # that of another set, so that both give inputs of one shape
    words: int = WORDS  # of a vocabulary, where the inputs are texts
    vocabulary: Vocabulary | None = None  # that of another set, likewise

    def __post_init__(self) -> None:
        expect_name("way to treat corrupt images", self.corrupt, CORRUPT)
        if self.channels not in (1, 3):
            raise ValueError(
                f"channels is {self.channels}; images are read with 1 channel (grey) or 3 (red, green, blue)"
            )
        if self.size is not None and self.size < 1:
            raise ValueError(f"size is {self.size}; the side of the images must be at least 1 pixel")
        if self.workers is not None and self.workers < 0:
            raise ValueError(f"workers is {self.workers}; give 0 (decode in this process) or more")


class Unreadable(NamedTuple):
    """A file that gave no image, and why."""

    path: str
    reason: str


class EscapingPath(ValueError):
    """A path that leads out of the folder it must stay in."""


class ImageStore:
    """Images that are decoded each time they are asked for. Their order does not depend on the number of workers."""

    def __init__(
        self, paths: Any, folder: Path, frame: Frame, *, channels: int = 3, workers: int = 0, confined: bool = False
    ) -> None:
        # An arrow array, not a list: worker processes would copy a million strings by counting references to them.
        self.paths = paths if isinstance(paths, pa.ChunkedArray | pa.Array) else pa.array(paths, pa.large_string())
        self.folder, self.frame, self.channels, self.workers = folder, frame, channels, workers
        self.confined = confined

    def __len__(self) -> int:
        return len(self.paths)

    def at(self, positions: np.ndarray[Any, Any]) -> ImageStore:
        """The images at these positions."""
        paths = self.paths.take(pa.array(positions))
        return ImageStore(
            paths, self.folder, self.frame, channels=self.channels, workers=self.workers, confined=self.confined
        )

    def path(self, position: int) -> Path:
        """Where an image is."""
        return self.folder / str(self.paths[position].as_py())

    def __getitems__(self, positions: Sequence[int]) -> Tensor | Unreadable:
        """A stack of images as bytes. An error is handed over as a value: a worker's exception loses its own words."""
        pixels = []
        for position in positions:
            path = self.path(int(position))
            try:
                found = read(path, self.frame, self.channels, self.folder if self.confined else None)
            except EscapingPath as error:
                found = Unreadable(str(path), str(error))
            if isinstance(found, Unreadable):
                return found
            pixels.append(found)
        return torch.from_numpy(np.stack(pixels))

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        for found in self._decoded(indices):
            if isinstance(found, Unreadable):
                raise ValueError(
                    f"{found.path} cannot be read as an image ({found.reason}); `mslg check` lists all such files, "
                    "--corrupt skip leaves them out"
                )
            yield found.float().div_(255)

    def _decoded(self, indices: Iterable[Tensor]) -> Iterator[Tensor | Unreadable]:
        groups = iter(indices)
        begin = [group for _, group in zip(range(2), groups)]
        if self.workers == 0 or len(begin) < 2:  # a single batch comes sooner than a worker starts
            for group in chain(begin, groups):
                yield self.__getitems__(group.tolist())
            return
        loader: DataLoader[Any] = DataLoader(
            self,  # type: ignore[arg-type]
            batch_sampler=(group.tolist() for group in chain(begin, groups)),
            num_workers=self.workers,
            collate_fn=_as_it_is,
            generator=torch.Generator(),  # otherwise it draws a number from the global one
        )
        yield from loader


class MemoryImages(TensorStore):
    """Images that were decoded once."""

    def __init__(self, pixels: Tensor, paths: Any, folder: Path, frame: Frame) -> None:
        super().__init__(pixels)
        self.paths, self.folder, self.frame = paths, folder, frame

    def at(self, positions: np.ndarray[Any, Any]) -> MemoryImages:
        """The images at these positions."""
        chosen = self.tensors[torch.from_numpy(positions)]
        return MemoryImages(chosen, self.paths.take(pa.array(positions)), self.folder, self.frame)

    def path(self, position: int) -> Path:
        """Where an image was read from."""
        return self.folder / str(self.paths[position].as_py())


def open_images(
    paths: Any, folder: Path, reading: Reading, *, name: str, confined: bool = False
) -> tuple[ImageStore | MemoryImages, np.ndarray[Any, np.dtype[np.int64]]]:
    """The images at these paths below a folder, and which of them are there: all, or with corrupt="skip" those that
    can be read. `confined` paths must not lead out of the folder."""
    listed = pa.array(paths, pa.large_string())
    kept = np.arange(len(listed), dtype=np.int64)
    workers = default_workers() if reading.workers is None else reading.workers
    if reading.corrupt == "keep":
        frame = reading.frame or Frame(SIZE, SIZE, SHORT_SIDE / SIZE)
        return ImageStore(listed, folder, frame, channels=reading.channels, confined=confined), kept
    everything = len(listed) <= LOOKED_AT or reading.corrupt == "skip"
    looked = kept if everything else np.unique(np.linspace(0, len(listed) - 1, SAMPLED).astype(np.int64))
    if len(listed) > LOOKED_AT:
        log.info("%s: looking at %d of %d image files", name, len(looked), len(listed))
    sizes, bad = set(), {}
    for position in looked.tolist():
        path = folder / listed[position].as_py()
        found = look(path, folder if confined else None)
        if isinstance(found, Unreadable):
            bad[position] = found
        else:
            sizes.add(found)
    kept = _without(kept, bad, len(looked), reading.corrupt, name)
    frame = reading.frame or _frame(sizes, reading.size)
    store = ImageStore(listed, folder, frame, channels=reading.channels, workers=workers, confined=confined)
    if len(kept) * reading.channels * frame.height * frame.width > IN_MEMORY:
        return store.at(kept), kept
    pixels = torch.empty((len(kept), reading.channels, frame.height, frame.width), dtype=torch.uint8)
    bad = {}
    for row, position in enumerate(kept.tolist()):
        image = read(store.path(position), frame, reading.channels, folder if confined else None)
        if isinstance(image, Unreadable):
            bad[position] = image
        else:
            pixels[row] = torch.from_numpy(image)
    if bad:
        good = ~np.isin(kept, list(bad))
        kept, pixels = _without(kept, bad, len(kept), reading.corrupt, name), pixels[torch.from_numpy(good)]
    return MemoryImages(pixels, listed.take(pa.array(kept)), folder, frame), kept


def default_workers() -> int:
    """As many as there are processors for this process, up to 4."""
    return min(4, processors())


def frame_of(store: InputStore) -> Frame | None:
    """How the images of a store were framed; None if it holds no image files."""
    return store.frame if isinstance(store, ImageStore | MemoryImages) else None


def read(path: Path, frame: Frame | None, channels: int, inside: Path | None = None) -> Pixels | Unreadable:
    """An image as bytes of shape (channels, height, width), in its own size if there is no frame."""
    if inside is not None:
        refuse_escape(path, inside)
    try:
        with Image.open(path) as image:
            return pixels_of(image, frame, channels)
    except Exception as error:  # on a broken file Pillow raises nearly anything
        return Unreadable(str(path), _reason(error))


def pixels_of(image: Image.Image, frame: Frame | None, channels: int) -> Pixels:
    """The bytes of an opened image, of shape (channels, height, width)."""
    mode = "L" if channels == 1 else "RGB"
    wanted = image.size if frame is None else _covering(image.size, frame)
    image.draft(mode, wanted)  # a JPEG is decoded at a fraction of its size if that is enough
    plain = eight_bits(image).convert(mode)
    if frame is not None:
        plain = _framed(plain, wanted, frame)
    pixels = np.array(plain, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def look(path: Path, inside: Path | None = None) -> tuple[int, int] | Unreadable:
    """The (width, height) of an image from its first bytes, and whether it has an end: quick, and right but for damage
    in the middle of a file."""
    if inside is not None:
        refuse_escape(path, inside)
    try:
        with path.open("rb") as file, Image.open(file) as image:
            size: tuple[int, int] = image.size
            kind = image.format
            file.seek(-min(64, path.stat().st_size), os.SEEK_END)
            tail = file.read()
    except Exception as error:  # on a broken file Pillow raises nearly anything
        return Unreadable(str(path), _reason(error))
    ending = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}.get(kind or "")
    if ending is None or ending not in tail:
        found = read(path, None, 3)
        if isinstance(found, Unreadable):
            return found
    return size


def refuse_escape(path: Path, inside: Path) -> None:
    """Raise if a path leads out of a folder, through a link too."""
    real, home = os.path.realpath(path), os.path.realpath(inside)
    if os.path.commonpath([real, home]) != home:
        raise EscapingPath(
            f"{path} leads out of the folder {inside} (to {real}); a manifest may name files of its own folder only: "
            "copy the file there, or move the manifest up"
        )


def unreadable_message(bad: Sequence[Unreadable], count: int, name: str) -> str:
    """What is said of files that cannot be read: how many, and the first of them."""
    shown = "".join(f"\n  {found.path} ({found.reason})" for found in bad[:SHOWN])
    more = f"\n  and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    return (
        f"{len(bad)} of {count} image files of {name} cannot be read; mend or remove them, or leave them out with "
        f'corrupt="skip" (--corrupt skip):{shown}{more}'
    )


def _without(
    kept: np.ndarray[Any, np.dtype[np.int64]], bad: dict[int, Unreadable], count: int, corrupt: str, name: str
) -> np.ndarray[Any, np.dtype[np.int64]]:
    if not bad:
        return kept
    if corrupt == "error":
        raise ValueError(unreadable_message(list(bad.values()), count, name))
    if len(bad) == count:
        first = next(iter(bad.values()))
        raise ValueError(
            f"none of the {count} image files of {name} can be read; the first is {first.path} ({first.reason}): "
            "check the folder"
        )
    log.warning("%s: %d of %d image files cannot be read and are left out", name, len(bad), count)
    return kept[~np.isin(kept, list(bad))]


def _frame(sizes: set[tuple[int, int]], size: int | None) -> Frame:
    if len(sizes) == 1:
        width, height = next(iter(sizes))
        if size is None or width == height == size:
            return Frame(height, width)
    return Frame(size or SIZE, size or SIZE, SHORT_SIDE / SIZE)


def _covering(size: tuple[int, int], frame: Frame) -> tuple[int, int]:
    """The (width, height) to scale an image to before the cut."""
    width, height = size
    scale = frame.margin * max(frame.width / width, frame.height / height)
    return max(frame.width, round(scale * width)), max(frame.height, round(scale * height))


def _framed(image: Image.Image, wanted: tuple[int, int], frame: Frame) -> Image.Image:
    if image.size != wanted:
        image = image.resize(wanted, Image.Resampling.BILINEAR)
    left, top = round((wanted[0] - frame.width) / 2), round((wanted[1] - frame.height) / 2)
    return image.crop((left, top, left + frame.width, top + frame.height))


def eight_bits(image: Image.Image) -> Image.Image:
    """Greys of 16 bits are scaled: Pillow would cut them off at 255."""
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    return image


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    return str(error) or type(error).__name__


def _as_it_is(stack: Any) -> Any:
    return stack

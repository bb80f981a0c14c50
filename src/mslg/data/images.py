"""Image files: decoding, scaling and cropping them to a common shape, and checking them quickly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from ..runtime.files import regular

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SIZE, SHORT_SIDE = 224, 256  # the paper's: resize the short side to 256, then crop the central 224 × 224

MOST_PIXELS = 100_000_000  # of an image: decoded, 300 MB

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class Frame(NamedTuple):
    """The shape of every image: scaled until it covers height × width times the margin, then cropped centrally."""

    height: int
    width: int
    margin: float = 1.0

    @classmethod
    def fit(cls, sizes: set[tuple[int, int]], size: int | None) -> Frame:
        """The frame for images of these (width, height): their own if all agree, otherwise size × size."""
        if len(sizes) == 1:
            width, height = next(iter(sizes))
            if size is None or width == height == size:
                return cls(height, width)
        return cls(size or SIZE, size or SIZE, SHORT_SIDE / SIZE)


class Unreadable(NamedTuple):
    """A file that could not be decoded, and why."""

    path: str
    reason: str


class EscapingPath(ValueError):
    """A path that leads out of the folder it must stay in."""


def read(path: Path, frame: Frame | None, channels: int, inside: Path | None = None) -> Pixels | Unreadable:
    """An image as uint8 of shape (channels, height, width), in its original size if there is no frame."""
    if inside is not None:
        refuse_escape(path, inside)
    try:
        with Image.open(regular(path)) as image:
            refuse_huge(image)
            return pixels_of(image, frame, channels)
    except Exception as error:  # Pillow raises nearly anything on a broken file
        return Unreadable(str(path), _reason(error))


def pixels_of(image: Image.Image, frame: Frame | None, channels: int) -> Pixels:
    """The pixels of an opened image as uint8 of shape (channels, height, width)."""
    mode = "L" if channels == 1 else "RGB"
    size = image.size if frame is None else _scaled_size(image.size, frame)
    image.draft(mode, size)  # decodes a JPEG at a fraction of its size if that is enough
    plain = eight_bits(image).convert(mode)
    if frame is not None:
        plain = _crop(plain if plain.size == size else plain.resize(size, Image.Resampling.BILINEAR), frame)
    pixels = np.array(plain, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def look(path: Path, inside: Path | None = None) -> tuple[int, int] | Unreadable:
    """The (width, height) of an image from its header, and whether the file is complete: fast, but blind to damage in
    the middle of a file."""
    if inside is not None:
        refuse_escape(path, inside)
    try:
        with regular(path).open("rb") as file, Image.open(file) as image:
            refuse_huge(image)
            size: tuple[int, int] = image.size
            kind = image.format
            file.seek(-min(64, path.stat().st_size), os.SEEK_END)
            tail = file.read()
    except Exception as error:  # Pillow raises nearly anything on a broken file
        return Unreadable(str(path), _reason(error))
    ending = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}.get(kind or "")
    if ending is None or ending not in tail:
        decoded = read(path, None, 3)
        if isinstance(decoded, Unreadable):
            return decoded
    return size


def refuse_huge(image: Image.Image) -> None:
    """Raise for an image that would fill the memory when decoded, however small its file is."""
    if image.width * image.height > MOST_PIXELS:
        raise ValueError(f"{image.width} × {image.height} pixels; at most {MOST_PIXELS:,} are read")


def refuse_escape(path: Path, inside: Path) -> None:
    """Raise if a path leads out of a folder, symbolic links included."""
    real, home = os.path.realpath(path), os.path.realpath(inside)
    if os.path.commonpath([real, home]) != home:
        raise EscapingPath(
            f"{path} leads out of the folder {inside} (to {real}); a manifest may only name files below its own "
            "folder: copy the file there, or move the manifest up"
        )


def eight_bits(image: Image.Image) -> Image.Image:
    """16-bit greyscale images scaled to 8 bits: Pillow would clip them at 255."""
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    return image


def _scaled_size(size: tuple[int, int], frame: Frame) -> tuple[int, int]:
    """The (width, height) to scale an image to before cropping."""
    width, height = size
    scale = frame.margin * max(frame.width / width, frame.height / height)
    return max(frame.width, round(scale * width)), max(frame.height, round(scale * height))


def _crop(image: Image.Image, frame: Frame) -> Image.Image:
    width, height = image.size
    left, top = round((width - frame.width) / 2), round((height - frame.height) / 2)
    return image.crop((left, top, left + frame.width, top + frame.height))


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    return str(error) or type(error).__name__

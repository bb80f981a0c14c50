"""Image files: decoding, scaling and cropping them to a common shape, and checking them quickly.

Everything that shows or trains on an image file takes it from `as_seen`: turned as its EXIF tag says, what is
transparent on white.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError, features

from ..runtime.files import regular

PLAIN = (".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
HEIC = (".heic", ".heif")  # photos of telephones: read if a decoder is installed
AVIF = (".avif",)  # likewise
EXTENSIONS = (*PLAIN, *HEIC, *AVIF)
UNREAD = (".jxl", ".jp2", ".svg", ".psd", ".dng", ".raw", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2")
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)  # the EXIF tag, and its values that swap width and height
SIZE, SHORT_SIDE = 224, 256  # the paper's: resize the short side to 256, then crop the central 224 × 224

MOST_PIXELS = 100_000_000  # of an image: decoded, 300 MB
MOST_BYTES = 2**30  # of its file

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


@cache
def reads_heic() -> bool:
    """Whether a decoder of HEIC files is installed; it is registered with Pillow on the way."""
    try:
        import_module("pillow_heif").register_heif_opener()
    except ImportError:
        return False
    return True


@cache
def reads_avif() -> bool:
    """Whether this Pillow decodes AVIF files: since 11.3, unless it was built without."""
    return "avif" in features.modules and bool(features.check("avif"))


def missing_decoder(name: str) -> tuple[str, str] | None:
    """The format of a file whose decoder is not installed, and how to install it; None if it can be read."""
    if name.lower().endswith(HEIC) and not reads_heic():
        return "HEIC", "pip install 'mslg[heic]'"
    if name.lower().endswith(AVIF) and not reads_avif():
        return "AVIF", "pip install 'pillow>=11.3'"
    return None


@contextmanager
def opened(path: Path, content: bytes | None = None) -> Iterator[Image.Image]:
    """An image file (or its content), opened but not decoded. One that would fill the memory, or is no plain file, is
    refused."""
    if path.suffix.lower() in HEIC:
        reads_heic()
    with Image.open(regular(path) if content is None else BytesIO(content)) as image:
        refuse_huge(image)
        yield image


def as_seen(image: Image.Image) -> Image.Image:
    """An opened image as a viewer shows it: 8 bits, upright, what is transparent on white."""
    upright = eight_bits(ImageOps.exif_transpose(image))
    if upright.mode not in ("LA", "PA", "RGBA", "La", "RGBa") and "transparency" not in upright.info:
        return upright
    layers = upright.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layers.size, "white"), layers).convert("RGB")


class EscapingPath(ValueError):
    """A path that leads out of the folder it must stay in."""


def read(path: Path, frame: Frame | None, channels: int, inside: Path | None = None) -> Pixels | Unreadable:
    """An image as uint8 of shape (channels, height, width), in its original size if there is no frame."""
    found = read_with_checksum(path, frame, channels, inside)
    return found if isinstance(found, Unreadable) else found[0]


class Kept(Protocol):
    """Decoded images, by row: see `PixelCache`."""

    def get(self, row: int, size: int, checksum: int) -> Pixels | None: ...

    def put(self, row: int, size: int, checksum: int, pixels: Pixels) -> None: ...


def read_with_checksum(
    path: Path, frame: Frame | None, channels: int, inside: Path | None = None, kept: tuple[Kept, int] | None = None
) -> tuple[Pixels, int] | Unreadable:
    """An image, and the CRC-32 of its file: of the same bytes, as the file may change at any time. It is not decoded if
    the row of `kept` has what this content was decoded to."""
    if inside is not None:
        refuse_escape(path, inside)
    try:
        content = _content(path)
        checksum = crc32(content)
        if kept is not None and (pixels := kept[0].get(kept[1], len(content), checksum)) is not None:
            return pixels, checksum
        with opened(path, content) as image:
            pixels = pixels_of(image, frame, channels)
        if kept is not None:
            kept[0].put(kept[1], len(content), checksum, pixels)
        return pixels, checksum
    except Exception as error:  # Pillow raises nearly anything on a broken file
        return Unreadable(str(path), _reason(error, path))


def pixels_of(image: Image.Image, frame: Frame | None, channels: int) -> Pixels:
    """The pixels of an opened image as uint8 of shape (channels, height, width)."""
    mode = "L" if channels == 1 else "RGB"
    width, height = _upright_size(image)
    size = (width, height) if frame is None else _scaled_size((width, height), frame)
    # Decodes a JPEG at a fraction of its size if that is enough.
    image.draft(mode, size if (width, height) == image.size else (size[1], size[0]))
    plain = as_seen(image).convert(mode)
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
        with opened(path) as image:
            size = _upright_size(image)
            kind = image.format
        with path.open("rb") as file:
            file.seek(-min(64, path.stat().st_size), os.SEEK_END)
            tail = file.read()
    except Exception as error:  # Pillow raises nearly anything on a broken file
        return Unreadable(str(path), _reason(error, path))
    ending = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}.get(kind or "")
    if ending is None or ending not in tail:
        decoded = read(path, None, 3)
        if isinstance(decoded, Unreadable):
            return decoded
    return size


def _content(path: Path) -> bytes:
    with regular(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise ValueError(f"a file of {size:,} bytes; at most {MOST_BYTES:,} are read")
        return file.read()


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


def _upright_size(image: Image.Image) -> tuple[int, int]:
    """The (width, height) of an opened image when it is turned as its EXIF tag says."""
    width, height = image.size
    if image.format == "PNG" and "exif" not in image.info:  # Pillow would decode all of it to find a tag at its end
        return width, height
    return (height, width) if image.getexif().get(ORIENTATION) in SIDEWAYS else (width, height)


def _scaled_size(size: tuple[int, int], frame: Frame) -> tuple[int, int]:
    """The (width, height) to scale an image to before cropping."""
    width, height = size
    scale = frame.margin * max(frame.width / width, frame.height / height)
    return max(frame.width, round(scale * width)), max(frame.height, round(scale * height))


def _crop(image: Image.Image, frame: Frame) -> Image.Image:
    width, height = image.size
    left, top = round((width - frame.width) / 2), round((height - frame.height) / 2)
    return image.crop((left, top, left + frame.width, top + frame.height))


def _reason(error: Exception, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, UnidentifiedImageError):
        missing = missing_decoder(path.name)
        return "not an image" if missing is None else f"{missing[0]}; to read it: {missing[1]}"
    return str(error) or type(error).__name__

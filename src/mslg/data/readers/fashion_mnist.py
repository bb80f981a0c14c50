"""Fashion-MNIST from its idx files, compressed or not."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np

from .bundle import Bundle, benchmark_source

NAMES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
FOLDERS = ("", "raw", "FashionMNIST/raw", "fashion-mnist")
BYTES = 8  # the code for unsigned bytes in the third byte of an idx file


def fashion_mnist(root: Path) -> Bundle:
    """60,000 training and 10,000 test images of shape (1, 28, 28)."""
    parts = {}
    for split, prefix in {"train": "train", "test": "t10k"}.items():
        images = idx(_find(root, f"{prefix}-images-idx3-ubyte"), dimensions=3)
        label = idx(_find(root, f"{prefix}-labels-idx1-ubyte"), dimensions=1).astype(np.int64)
        parts[split] = benchmark_source(images[:, None], label, NAMES, split=split, name="fashion-mnist")
    return Bundle(parts["train"], parts["test"])


def idx(path: Path, *, dimensions: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An idx file of bytes: two zeros, the type, the number of dimensions, their sizes (big-endian), the values."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be unpacked ({error}); download it again") from error
    if len(content) < 4 or content[:4] != bytes([0, 0, BYTES, dimensions]):
        raise ValueError(
            f"{path} begins with {content[:4].hex()}; an idx file of bytes begins with 000008{dimensions:02x}"
        )
    start = 4 + 4 * dimensions
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    if len(content) - start != int(np.prod(shape)):
        raise ValueError(f"{path} holds {len(content) - start} values; its header says {shape}: download it again")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape).copy()


def _find(root: Path, name: str) -> Path:
    for folder in FOLDERS:
        for ending in ("", ".gz"):
            path = root / folder / f"{name}{ending}"
            if path.exists():
                return path
    raise FileNotFoundError(f"{root} has no {name} or {name}.gz; pass root= (--root): the folder of the four idx files")

"""A digest of all inputs of a store, cheap beside reading them: tells whether a run continues on the same data."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..runtime.seeds import seeded
from .batch import leaves
from .image_stores import ImageStore
from .stores import InputStore, TensorStore, Worded

SAMPLED = 0.01  # share of image files whose content is read: the size of every file is looked at
MOST = 500  # files read in full, at most
SPACED = 16  # items of a Dataset: reading all of them would be an epoch's work


def content_digest(store: InputStore) -> bytes:
    """A digest of all values in memory, all texts, or the sizes of all image files and the content of some. Of other
    stores, such as a Dataset in Python, a few items spread over the data are read. It tells changes, not forgeries."""
    digest = hashlib.sha256()
    for part in _parts(store):
        digest.update(part)
    return digest.digest()


def _parts(store: InputStore) -> Iterator[Any]:
    if isinstance(store, TensorStore):
        for tensor, (kind, checksum) in zip(leaves(store.tensors), store.checksums(), strict=True):
            yield f"{kind}{tuple(tensor.shape)}{checksum}".encode()
    elif isinstance(store, Worded):
        for position in range(len(store)):
            yield store.text(position).encode(errors="replace") + b"\0"
    elif isinstance(store, ImageStore):
        yield from _files(store)
    elif len(store):
        places = torch.linspace(0, len(store) - 1, min(SPACED, len(store))).long()
        with seeded(torch.device("cpu"), 0, "fingerprint"):  # a Dataset may transform its items at random
            for inputs in store.batches(places.split(1)):  # one at a time: their shapes may differ
                yield from (tensor.contiguous().numpy().tobytes() for tensor in leaves(inputs))


def _files(store: ImageStore) -> Iterator[bytes]:
    """Sizes, not times: a copied file has another time. The content of all of them is compared as it is read."""
    paths = [os.path.join(store.folder, path) for path in store.paths.to_pylist()]  # noqa: PTH118 - a tenth of the time
    sizes = np.fromiter(map(_size, paths), dtype=np.int64, count=len(paths))
    yield sizes.tobytes()
    count = min(len(store), MOST, max(1, int(SAMPLED * len(store))))
    for position in np.linspace(0, len(store) - 1, count).astype(int).tolist():
        if sizes[position] >= 0:
            yield Path(paths[position]).read_bytes()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return -1

"""The content of samples as bytes, to find samples that occur twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from torch import Tensor

from .batch import leaves
from .stores import InputStore, TensorStore, Worded

CHUNK = 65_536  # samples compared at a time: a second copy of the whole data may not fit into memory


def has_content(store: InputStore) -> bool:
    """Whether contents can be compared without reading files."""
    return isinstance(store, TensorStore | Worded)


def contents(store: InputStore, index: Tensor) -> Iterator[bytes]:
    """The text, or a digest of the tensors, of each sample at these positions of a store in memory."""
    if isinstance(store, Worded):
        yield from (store.text(position).encode(errors="replace") for position in index.tolist())
        return
    assert isinstance(store, TensorStore)
    for chunk in index.split(CHUNK):
        tensors = [tensor[chunk].reshape(len(chunk), -1).contiguous().numpy() for tensor in leaves(store.tensors)]
        for rows in zip(*tensors, strict=True):
            digest = hashlib.blake2b(digest_size=12)
            for row in rows:
                digest.update(row.tobytes())
            yield digest.digest()

"""The content of samples as bytes, to find samples that occur twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .batch import leaves
from .stores import InputStore, TensorStore, Worded

COMPARED = 16  # values of a sample, about, that are looked at first
CHUNK = 65_536  # samples compared at a time: a second copy of the whole data may not fit into memory


def has_content(store: InputStore) -> bool:
    """Whether contents can be compared without reading files."""
    return isinstance(store, TensorStore | Worded)


def possible_copies(store: InputStore, index: Tensor, other: InputStore) -> Tensor:
    """Of these positions those whose content may be in another store too: a few values of each sample tell that most
    are not, in a fraction of the time that digests take."""
    if any(isinstance(each, Worded) or not isinstance(each, TensorStore) for each in (store, other)):
        return index
    there = _fingerprints(other, torch.arange(len(other)))
    return index[torch.from_numpy(np.isin(_fingerprints(store, index), there))]


def _fingerprints(store: InputStore, index: Tensor) -> npt.NDArray[np.uint64]:
    """A number for each sample: the same for the same content."""
    assert isinstance(store, TensorStore)
    total = np.zeros(len(index), dtype=np.uint64)
    for number, tensor in enumerate(leaves(store.tensors)):
        rows = tensor.flatten(1) if tensor.dim() > 1 else tensor.unsqueeze(1)
        some = rows[:, :: max(1, rows.shape[1] // COMPARED)].index_select(0, index).contiguous().numpy().view(np.uint8)
        words = np.pad(some, ((0, 0), (0, -some.shape[1] % 8))).view(np.uint64)
        factors = np.random.default_rng(number).integers(2**63, size=words.shape[1], dtype=np.uint64) * 2 + 1
        total += words @ factors  # modulo 2⁶⁴
    return total


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

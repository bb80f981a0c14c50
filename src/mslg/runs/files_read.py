"""The files that a run has read lazily: their checksums are part of its checkpoint, and compared after a resume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from ..data.concat import ConcatStore
from ..data.file_checksums import FileChecksums
from ..data.image_stores import ImageStore
from ..data.samples import Samples
from ..data.stores import InputStore
from ..runtime import distributed


class FilesRead:
    """Of the stores of some samples, in this order."""

    def __init__(self, samples: Sequence[Samples | None] = ()) -> None:
        found = [seen for part in samples if part is not None for seen in _checksums(part.store)]
        self.checksums = list({id(seen): seen for seen in found}.values())

    def state(self) -> list[Tensor]:
        """What any of the processes has read. Each must call this."""
        return [distributed.gathered(seen.values[None]).amax(0) for seen in self.checksums]

    def restore(self, state: Sequence[Tensor]) -> None:
        """Take over what the interrupted run has read; nothing if its checkpoint is older than this record."""
        for seen, values in zip(self.checksums, state, strict=False):
            seen.restore(values)


def _checksums(store: InputStore) -> Iterator[FileChecksums]:
    if isinstance(store, ConcatStore):
        yield from _checksums(store.first)
        yield from _checksums(store.second)
    elif isinstance(store, ImageStore):
        yield store.seen

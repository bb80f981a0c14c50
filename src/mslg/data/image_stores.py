"""Images as inputs: decoded by worker processes when they are needed, or once: into memory, or into a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..runtime.machine import processors
from .batch import leaves
from .file_checksums import FileChecksums
from .images import EscapingPath, Frame, Unreadable, read_with_checksum
from .pixel_cache import PixelCache
from .stores import InputStore, TensorStore

OVERSAMPLED = 2  # sides to which images are decoded, of what they are scaled to later: the detail survives


class Decoded(NamedTuple):
    """Images of the same size, as uint8, and the CRC-32 of their files."""

    positions: Tensor
    pixels: Tensor
    checksums: Tensor


class ImageStore:
    """Images that are decoded on each access. Their order does not depend on the number of workers. A file that is not
    what it was when it was first read is an error."""

    def __init__(
        self,
        paths: Any,
        folder: Path,
        frame: Frame,
        *,
        channels: int = 3,
        workers: int = 0,
        confined: bool = False,
    ) -> None:
        # An arrow array, not a list: reference counting would make every worker process copy a million strings.
        self.paths = paths if isinstance(paths, pa.ChunkedArray | pa.Array) else pa.array(paths, pa.large_string())
        self.folder, self.frame, self.channels, self.workers = folder, frame, channels, workers
        self.confined = confined
        # What has been read, and where in it these files are: the parts of a store share it.
        self.seen, self.rows = FileChecksums(len(self.paths)), torch.arange(len(self.paths))
        self.kept: tuple[PixelCache, Tensor] | None = None  # decoded images, and the row of each in it

    def __len__(self) -> int:
        return len(self.paths)

    def at(self, positions: np.ndarray[Any, Any]) -> ImageStore:
        """The images at these positions."""
        chosen, index = copy(self), torch.from_numpy(positions)
        chosen.paths, chosen.rows = self.paths.take(pa.array(positions)), self.rows[index]
        chosen.kept = None if self.kept is None else (self.kept[0], self.kept[1][index])
        return chosen

    def keep_decoded(self, folder: Path) -> None:
        """Decode each image once, here and in all parts that are taken from now on: what it looked like is kept in a
        file of this folder. See `PixelCache`."""
        cache = PixelCache.of(folder, self.paths, self.folder, self.frame, self.channels)
        self.kept = None if cache is None else (cache, torch.arange(len(self)))

    def path(self, position: int) -> Path:
        """Where an image is."""
        return self.folder / str(self.paths[position].as_py())

    def __getitems__(self, positions: Sequence[int]) -> Decoded | Unreadable:
        """A stack of images. An unreadable file is returned, not raised: a DataLoader rewords exceptions."""
        images, checksums = [], []
        for position in positions:
            path, inside = self.path(int(position)), self.folder if self.confined else None
            kept = None if self.kept is None else (self.kept[0], int(self.kept[1][position]))
            try:
                image = read_with_checksum(path, self.frame, self.channels, inside, kept)
            except EscapingPath as error:
                image = Unreadable(str(path), str(error))
            if isinstance(image, Unreadable):
                return image
            images.append(image[0])
            checksums.append(image[1])
        return Decoded(torch.tensor(positions), torch.from_numpy(np.stack(images)), torch.tensor(checksums))

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        for images in self._decoded(indices):
            if isinstance(images, Unreadable):
                raise ValueError(
                    f"{images.path} cannot be read as an image ({images.reason}); `mslg check` lists all such files, "
                    "--corrupt skip leaves them out"
                )
            changed = self.seen.compare(self.rows[images.positions], images.checksums)
            if bool(changed.any()):
                path = self.path(int(images.positions[changed][0]))
                raise ValueError(
                    f"{path} is not what it was when this run first read it; put the old file back and resume, or "
                    "start a new run"
                )
            yield images.pixels.float().div_(255)

    def _decoded(self, indices: Iterable[Tensor]) -> Iterator[Decoded | Unreadable]:
        groups = iter(indices)
        first = list(islice(groups, 2))
        if self.workers == 0 or len(first) < 2:  # a single batch is faster than the start of a worker
            for group in chain(first, groups):
                yield self.__getitems__(group.tolist())
            return
        loader: DataLoader[Any] = DataLoader(
            self,  # type: ignore[arg-type]
            batch_sampler=(group.tolist() for group in chain(first, groups)),
            num_workers=self.workers,
            collate_fn=_unchanged,
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


def decoded_for(store: InputStore, side: int) -> InputStore:
    """The same image files, decoded for networks that scale their shorter side to `side`: to twice that, if they are
    larger. Large JPEG files are then decoded at a fraction of their size; what is seen of an image stays the same."""
    frame = frame_of(store)
    if frame is None or min(frame.height, frame.width) <= OVERSAMPLED * side:
        return store
    assert isinstance(store, ImageStore | MemoryImages)
    scale = OVERSAMPLED * side / min(frame.height, frame.width)
    smaller = frame._replace(height=round(scale * frame.height), width=round(scale * frame.width))
    if isinstance(store, ImageStore):
        reduced = copy(store)
        reduced.frame, reduced.kept = smaller, None
        return reduced
    # Read again, so that an image is the same in a small and in a large set.
    channels = int(leaves(store.tensors)[0].shape[1])
    return ImageStore(store.paths, store.folder, smaller, channels=channels, workers=default_workers())


def default_workers() -> int:
    """One per available processor, at most 4."""
    return min(4, processors())


def frame_of(store: InputStore) -> Frame | None:
    """The frame of a store's images; None if it holds no image files."""
    return store.frame if isinstance(store, ImageStore | MemoryImages) else None


def _unchanged(stack: Any) -> Any:
    return stack

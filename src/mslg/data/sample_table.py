"""What is remembered of every sample: one row each, in memory or in a file that may be larger than memory."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..runtime import distributed

PIECE = 65536  # rows handled at a time
ENTRIES = 2**20  # of a table handled at a time: with many columns, fewer rows
NOTED = 2**24  # bytes of a journal read at a time
LARGE = 2**30  # bytes: a table beyond this goes to a file, where there is a folder for it
MOST_JOURNAL = 2**32  # bytes of all journals of a run: beyond this it is time for a checkpoint, which empties them


class SampleTable(nn.Module):
    """A table with one row a sample, addressed by the sample's index and never by its place in a batch.

    With several processes each keeps the rows of the samples it owns, and must be asked for no others. With a `path`
    the rows live in a memory-mapped file beside which a journal keeps the rows as they were at the last checkpoint; a
    resumed run rolls back to them. A file begins with zeros. One that can be made again needs no journal: it is made
    anew by whoever uses it.
    """

    rows: Tensor

    def __init__(
        self,
        samples: int,
        *columns: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        path: Path | None = None,
        journal: bool = True,
    ) -> None:
        super().__init__()
        self.samples, self.columns, self.dtype, self.path, self.journal = samples, columns, dtype, path, journal
        self._mapped: MappedSampleTable | None = None
        self._left: list[
            MappedSampleTable
        ] = []  # files of another number of processes, until they are no longer needed
        if path is None:
            shape = (distributed.local_count(samples), *columns)
            self.register_buffer("rows", torch.zeros(shape, dtype=dtype, device=device))

    @property
    def file(self) -> MappedSampleTable | None:
        """The file, made at the first use: it may lie in a run's folder that does not exist before."""
        if self._mapped is None and self.path is not None:
            self._mapped = self._file(distributed.rank(), distributed.ranks())
        return self._mapped

    def _file(self, rank: int, ranks: int) -> MappedSampleTable:
        assert self.path is not None
        rows = distributed.local_count(self.samples, (rank, ranks))
        width = torch.Size(self.columns).numel()
        return MappedSampleTable(_of_rank(self.path, rank, ranks), rows, width, self.dtype, journal=self.journal)

    def __getitem__(self, index: Tensor) -> Tensor:
        """A copy of the rows of these samples."""
        place = distributed.local_rows(index)
        if (file := self.file) is None:
            rows = self.rows  # looked up once: of a module that is slow
            return rows.index_select(0, place.to(rows.device))
        return file.get(place.cpu()).view(-1, *self.columns).to(index.device)

    def __setitem__(self, index: Tensor, values: Tensor) -> None:
        place = distributed.local_rows(index)
        if (file := self.file) is None:
            rows = self.rows
            rows.index_copy_(0, place.to(rows.device), values.to(rows.device, rows.dtype))
        else:
            file.put(place.cpu(), values.detach().to("cpu", self.dtype).view(len(place), -1))

    def journal_bytes(self) -> int:
        """What has been noted since the last checkpoint."""
        return 0 if self._mapped is None else self._mapped.noted

    def checkpointed(self) -> None:
        """The checkpoint with this table's state is safely on disk: older journals are no longer needed."""
        if self.file is not None:
            self.file.forget_older()
            while self._left:
                self._left.pop().delete()

    def get_extra_state(self) -> dict[str, Any]:
        """With a file, a checkpoint holds only the name of the journal that leads back to it."""
        generation = self.file.begin_generation() if self.file is not None else 0
        return {"generation": generation, "ranks": distributed.ranks()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if self.file is None:
            return
        generation, ranks = int(state["generation"]), int(state["ranks"])
        if ranks == distributed.ranks():
            self.file.roll_back(generation)
        else:
            self._deal_anew(generation, ranks)

    def _deal_anew(self, generation: int, ranks: int) -> None:
        """Fill this process's file from those of another number of processes."""
        assert self._mapped is not None
        self._mapped.delete()
        self._mapped = None
        file = self.file
        assert file is not None
        others = [self._file(rank, ranks) for rank in range(ranks)]
        if distributed.rank() == 0:
            for other in others:
                other.roll_back(generation)
        distributed.barrier()
        for rank, other in enumerate(others):
            other.settle()
            index = torch.arange(rank, self.samples, ranks)
            own = index[index % distributed.ranks() == distributed.rank()]
            for piece in pieces_of(own, max(1, torch.Size(self.columns).numel())):
                file.rows[distributed.local_rows(piece)] = other.rows[piece // ranks]
        if distributed.rank() == 0:
            self._left = others
        distributed.barrier()

    def extra_repr(self) -> str:
        size = " × ".join(map(str, (self.samples, *self.columns)))
        return f"{size}, {'in memory' if self.path is None else f'in {self.path}'}"


def file_if_large(folder: Path | None, name: str, samples: int, columns: int, dtype: torch.dtype) -> Path | None:
    """Where such a table belongs: nowhere, which is in memory, unless it is large."""
    large = samples * columns * dtype.itemsize > LARGE
    return folder / name if large and folder is not None else None


def pieces_of(index: Tensor, columns: int) -> list[Tensor]:
    """The index of a table's rows, some at a time: the table may be larger than memory."""
    return list(index.split(max(1, min(PIECE, ENTRIES // columns))))


def pieces(count: int) -> list[slice]:
    """So many values, some at a time."""
    return [slice(start, min(start + PIECE, count)) for start in range(0, count, PIECE)]


def _mapped(path: Path, rows: int, columns: int, dtype: torch.dtype) -> tuple[mmap.mmap | None, Tensor]:
    """A file's content as a matrix."""
    if not rows * columns:  # an empty file cannot be mapped
        return None, torch.empty(rows, columns, dtype=dtype)
    with path.open("r+b") as file:
        found = mmap.mmap(file.fileno(), 0)
    # Batches are drawn at random: what lies around a row is not wanted, and to read it costs a hundred times the step.
    found.madvise(mmap.MADV_RANDOM)
    return found, torch.frombuffer(found, dtype=dtype).view(rows, columns)


def _of_rank(path: Path, rank: int, ranks: int) -> Path:
    return path if ranks == 1 else path.with_name(f"{path.name}.{rank}-of-{ranks}")


class MappedSampleTable:
    """A matrix in a memory-mapped file with an undo journal.

    The journal of generation g holds the old values of the rows changed since checkpoint g. Taking a checkpoint begins
    generation g+1; going back to checkpoint g undoes the newest journals first, down to g. Older ones are deleted only
    after the next checkpoint is on disk, so a process killed at any moment finds its way back.
    """

    def __init__(self, path: Path, rows: int, columns: int, dtype: torch.dtype, *, journal: bool = True) -> None:
        self.path, self.journaled = Path(path), journal
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not journal:
            self.delete()
        size = rows * columns * dtype.itemsize
        existed = self.path.exists()
        if existed and self.path.stat().st_size != size:
            raise ValueError(
                f"{self.path} has {self.path.stat().st_size} bytes, a table of {rows} × {columns} needs {size}; "
                "it belongs to other data: delete it or name another file"
            )
        with self.path.open("ab") as file:
            file.truncate(size)  # sparse: untouched rows take no space on disk
        self._map, self._rows = _mapped(self.path, rows, columns, dtype)
        self._touched = torch.zeros(rows if journal else 0, dtype=torch.bool)
        self._fetched = torch.empty(0, dtype=torch.int64)
        self.generation = 0
        self.noted = 0  # bytes in the journal of this generation
        self._settled = not existed
        if journal and not existed:
            self._journal(0).touch()

    @property
    def rows(self) -> Tensor:
        """The matrix. A file left by a run that never reached a checkpoint is rolled back to its empty start."""
        if not self._settled:
            if not self._journal(0).exists():
                raise ValueError(f"{self.path} belongs to another run; resume that run, or name another file")
            self.roll_back(0)
        return self._rows

    def settle(self) -> None:
        """The file is as it should be: it has been rolled back by another process."""
        self._settled = True

    def delete(self) -> None:
        """The file and its journals."""
        for generation in self._generations():
            self._journal(generation).unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def get(self, place: Tensor) -> Tensor:
        """A copy of these rows."""
        rows = self.rows
        self._fetch(place)
        return rows[place]

    def put(self, place: Tensor, values: Tensor) -> None:
        """Write these rows, after noting their old values."""
        rows = self.rows
        self._fetch(place)
        if self.journaled:
            self._note(place[~self._touched[place]].unique())
        rows[place] = values

    def _note(self, fresh: Tensor) -> None:
        """Write down rows that are changed for the first time since the checkpoint."""
        if not len(fresh):
            return
        records = torch.cat([fresh.unsqueeze(1).view(torch.uint8), self._rows[fresh].view(torch.uint8)], 1)
        with self._journal(self.generation).open("ab") as journal:
            journal.write(records.numpy().data)
        self.noted += records.numel()
        self._touched[fresh] = True

    def _fetch(self, place: Tensor) -> None:
        """Ask for these rows all at once: one after the other, each would wait for the disk."""
        if self._map is None or not len(place) or torch.equal(place, self._fetched):
            return
        first, last = int(place.min()), int(place.max())
        in_order = last - first < 2 * len(place)  # a pass over the table, not a batch
        width = self._rows.shape[1] * self._rows.element_size()
        for begin, end in [(first, last + 1)] if in_order else [(row, row + 1) for row in place.tolist()]:
            page = begin * width // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_WILLNEED, page, end * width - page)
        self._fetched = place

    def begin_generation(self) -> int:
        """Called for a checkpoint: what is in the file now is what a return to this generation finds."""
        _ = self.rows
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.generation += 1
        self._begin(self.generation)
        return self.generation

    def forget_older(self) -> None:
        """Delete the journals that lead further back than the newest checkpoint."""
        for older in [g for g in self._generations() if g < self.generation]:
            self._journal(older).unlink()

    def roll_back(self, generation: int) -> None:
        """Undo everything since the checkpoint that began this generation."""
        if not self._journal(generation).exists():
            raise ValueError(
                f"{self.path} is not the table that the checkpoint was taken with: it is gone, or another's; "
                "put it back, with its journals, or start anew"
            )
        for newer in sorted((g for g in self._generations() if g >= generation), reverse=True):
            for place, old in self._noted(newer):
                self._rows[place] = old
            if newer > generation:
                self._journal(newer).unlink()
        self.generation = generation
        self._begin(generation)
        self._settled = True

    def _noted(self, generation: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Places and old values from a journal, some at a time; each place is in it once."""
        record = np.dtype([("place", "<i8"), ("old", "u1", self._rows.shape[1] * self._rows.element_size())])
        with self._journal(generation).open("rb") as journal:
            while content := journal.read(record.itemsize * max(1, NOTED // record.itemsize)):
                # A record cut short by a kill was never followed by its change.
                found = np.frombuffer(content, record, count=len(content) // record.itemsize)
                place, old = (torch.from_numpy(found[name].copy()) for name in ("place", "old"))
                yield place, old.view(self._rows.dtype)

    def _begin(self, generation: int) -> None:
        self._journal(generation).write_bytes(b"")
        self._touched.zero_()
        self.noted = 0

    def _journal(self, generation: int) -> Path:
        return self.path.with_name(f"{self.path.name}.journal-{generation}")

    def _generations(self) -> list[int]:
        return sorted(int(p.name.rpartition("-")[2]) for p in self.path.parent.glob(f"{self.path.name}.journal-*"))

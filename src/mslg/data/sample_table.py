"""Per-sample tables: one row per sample, in memory or in a file that may be larger than memory."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..runtime import distributed
from ..runtime.sharding import PerSample

PIECE = 65536  # rows processed at a time
ENTRIES = 2**20  # table entries processed at a time: fewer rows if there are many columns
NOTED = 2**24  # bytes of a journal read at a time
LARGE = 2**30  # bytes: a larger table is kept in a file if there is a folder for it
MOST_JOURNAL = 2**32  # bytes in all journals of a run: beyond this a checkpoint is due, which empties them


class SampleTable(nn.Module):
    """A table of zeros with one row per sample, read and written by sample index: `table[index] = values`.

    With several processes each holds the rows of the samples it owns, and only those may be accessed. With a `path` the
    rows are in a memory-mapped file, and a journal beside it holds their values at the last checkpoint, to which a
    resumed run rolls back. Writing a checkpoint therefore takes three steps: `begin_checkpoint()`, saving
    `state_dict()`, and, once that is on disk, `end_checkpoint()`.

    Args:
        samples: number of samples in the source.
        columns: shape of a row; none for one value per sample.
        dtype: of the values.
        device: of a table in memory.
        path: keep the rows in this file instead of in memory.
        journal: False for a table that is computed anew after a resume; its file starts empty each time.
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
        self._obsolete: list[MappedSampleTable] = []  # files of another number of processes, until the next checkpoint
        if path is None:
            shape = (distributed.local_count(samples), *columns)
            self.register_buffer("rows", torch.zeros(shape, dtype=dtype, device=device))

    @property
    def file(self) -> MappedSampleTable | None:
        """The file, created at the first use: the folder of the run may not exist earlier."""
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
        """Size of the journal since the last checkpoint."""
        return 0 if self._mapped is None else self._mapped.noted

    def begin_checkpoint(self) -> None:
        """From here on, the rows as they are now can be restored by loading the `state_dict()` taken next."""
        if self.file is not None:
            self.file.begin_generation()

    def end_checkpoint(self) -> None:
        """The checkpoint is on disk: journals that lead further back are deleted."""
        if self.file is not None:
            self.file.forget_older()
            while self._obsolete:
                self._obsolete.pop().delete()

    def get_extra_state(self) -> dict[str, Any]:
        """With a file, the number of the journal that leads back to the checkpoint."""
        return {"generation": 0 if self._mapped is None else self._mapped.generation, "ranks": distributed.ranks()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if self.file is None:
            return
        generation, ranks = int(state["generation"]), int(state["ranks"])
        if ranks == distributed.ranks():
            self.file.roll_back(generation)
        else:
            self._deal_anew(generation, ranks)

    def _deal_anew(self, generation: int, ranks: int) -> None:
        """Fill this process's file from those written by another number of processes."""
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
            self._obsolete = others
        distributed.barrier()

    def extra_repr(self) -> str:
        size = " × ".join(map(str, (self.samples, *self.columns)))
        return f"{size}, {'in memory' if self.path is None else f'in {self.path}'}"


def sharded_state(module: nn.Module) -> dict[str, Any]:
    """The module's `state_dict()`, with the rows of every table in it marked as divided among processes."""
    state = dict(module.state_dict())
    for name, table in module.named_modules():
        if isinstance(table, SampleTable) and table.path is None:
            key = f"{name}.rows" if name else "rows"
            state[key] = PerSample(state[key])
    return state


def file_if_large(folder: Path | None, name: str, samples: int, columns: int, dtype: torch.dtype) -> Path | None:
    """The file for such a table, or None to keep it in memory: it is small, or there is no folder."""
    large = samples * columns * dtype.itemsize > LARGE
    return folder / name if large and folder is not None else None


def pieces_of(index: Tensor, columns: int) -> list[Tensor]:
    """The index in chunks, for tables that may be larger than memory."""
    return list(index.split(max(1, min(PIECE, ENTRIES // columns))))


def pieces(count: int) -> list[slice]:
    """Slices of up to PIECE values that cover `count` values."""
    return [slice(start, min(start + PIECE, count)) for start in range(0, count, PIECE)]


def _mapped(path: Path, rows: int, columns: int, dtype: torch.dtype) -> tuple[mmap.mmap | None, Tensor]:
    """A file's content as a matrix."""
    if not rows * columns:  # an empty file cannot be mapped
        return None, torch.empty(rows, columns, dtype=dtype)
    with path.open("r+b") as file:
        content = mmap.mmap(file.fileno(), 0)
    # Batches are random: reading ahead around a row would cost a hundred times the step.
    content.madvise(mmap.MADV_RANDOM)
    return content, torch.frombuffer(content, dtype=dtype).view(rows, columns)


def _of_rank(path: Path, rank: int, ranks: int) -> Path:
    return path if ranks == 1 else path.with_name(f"{path.name}.{rank}-of-{ranks}")


class MappedSampleTable:
    """A matrix in a memory-mapped file with an undo journal.

    The journal of generation g holds the old values of the rows changed since checkpoint g. A checkpoint begins
    generation g+1; rolling back to checkpoint g undoes the journals from the newest down to g. Older journals are
    deleted only when the next checkpoint is on disk, so a process killed at any moment can be resumed.
    """

    def __init__(self, path: Path, rows: int, columns: int, dtype: torch.dtype, *, journal: bool = True) -> None:
        self.path, self.journaled = Path(path), journal
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not journal:
            self.delete()
        size = rows * columns * dtype.itemsize
        existed = self.path.exists() and (self.path.stat().st_size > 0 or size == 0)  # empty: killed while it was made
        if existed and self.path.stat().st_size != size:
            raise ValueError(
                f"{self.path} has {self.path.stat().st_size} bytes, a table of {rows} × {columns} needs {size}; "
                "it belongs to other data: delete it or name another file"
            )
        if not existed:
            if journal:
                self._journal(0).touch()
            self._reserve(size)
        self._map, self._rows = _mapped(self.path, rows, columns, dtype)
        self._touched = torch.zeros(rows if journal else 0, dtype=torch.bool)
        self._fetched = torch.empty(0, dtype=torch.int64)
        self.generation = 0
        self.noted = 0  # bytes in the journal of this generation
        self._settled = not existed

    def _reserve(self, size: int) -> None:
        """Make the file, of zeros. On a full disk this is an error now; later, writing to the mapped file would end the
        process by a signal, without a word."""
        free = shutil.disk_usage(self.path.parent).free
        try:
            if size > free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            with self.path.open("ab") as file:
                if size:
                    os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            self.path.unlink(missing_ok=True)
            raise OSError(
                error.errno,
                f"a table of {size:,} bytes does not fit on the disk of {self.path} ({error.strerror}, {free:,} bytes "
                "are free); free some space, or choose another folder",
            ) from error

    @property
    def rows(self) -> Tensor:
        """The matrix. A file of a run that never reached a checkpoint is rolled back to zeros first."""
        if not self._settled:
            if not self._journal(0).exists():
                raise ValueError(f"{self.path} belongs to another run; resume that run, or name another file")
            self.roll_back(0)
        return self._rows

    def settle(self) -> None:
        """Another process has rolled the file back."""
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
        """Append the rows that change for the first time since the checkpoint to the journal."""
        if not len(fresh):
            return
        records = torch.cat([fresh.unsqueeze(1).view(torch.uint8), self._rows[fresh].view(torch.uint8)], 1)
        with self._journal(self.generation).open("ab") as journal:
            journal.write(records.numpy().data)
        self.noted += records.numel()
        self._touched[fresh] = True

    def _fetch(self, place: Tensor) -> None:
        """Prefetch these rows together: one by one, each would wait for the disk."""
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
        """Begin a checkpoint: rolling back to the returned generation restores the present rows."""
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
                f"{self.path} is not the table that the checkpoint was taken with: it is missing or belongs to another "
                "run; put it back, with its journals, or start over"
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
        """Rows and their old values from a journal, in chunks; each row occurs once."""
        record = np.dtype([("place", "<i8"), ("old", "u1", self._rows.shape[1] * self._rows.element_size())])
        with self._journal(generation).open("rb") as journal:
            while content := journal.read(record.itemsize * max(1, NOTED // record.itemsize)):
                # A record cut short by a kill was never followed by its change.
                records = np.frombuffer(content, record, count=len(content) // record.itemsize)
                place, old = (torch.from_numpy(records[name].copy()) for name in ("place", "old"))
                yield place, old.view(self._rows.dtype)

    def _begin(self, generation: int) -> None:
        self._journal(generation).write_bytes(b"")
        self._touched.zero_()
        self.noted = 0

    def _journal(self, generation: int) -> Path:
        return self.path.with_name(f"{self.path.name}.journal-{generation}")

    def _generations(self) -> list[int]:
        return sorted(int(p.name.rpartition("-")[2]) for p in self.path.parent.glob(f"{self.path.name}.journal-*"))

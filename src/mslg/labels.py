"""A table of label logits, one row a training sample, addressed by the sample's index and never by batch position."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

log = logging.getLogger("mslg")


class LabelTable(nn.Module):
    """Label logits u_j = start·onehot(given_j) + displacement_j (the paper's y^d); softmax gives the soft label.

    Only the displacement is stored: zero means untouched, so a file of it is sparse and float16 stays precise where it
    matters. With a `path` the table lives in a memory-mapped file that may be larger than memory; the rows as they were
    at the last checkpoint are kept in a journal beside it, and a resumed run rolls back to them.
    """

    given: Tensor
    displacement: Tensor

    def __init__(
        self,
        given: Tensor,
        classes: int,
        *,
        start: float = 10.0,
        dtype: torch.dtype = torch.float32,
        path: Path | None = None,
    ) -> None:
        super().__init__()
        if dtype not in (torch.float32, torch.float16, torch.float64):
            raise ValueError(f"a label table of {dtype} is not possible; use float32 or float16")
        self.classes, self.start = classes, start
        self.register_buffer("given", given.clone(), persistent=False)
        self.dtype, self.path = dtype, path
        self._mapped: MappedRows | None = None
        if path is None:
            self.register_buffer("displacement", torch.zeros(len(given), classes, dtype=dtype, device=given.device))

    @property
    def file(self) -> MappedRows | None:
        """The file, made at the first use: it may lie in a run's folder that does not exist before."""
        if self._mapped is None and self.path is not None:
            self._mapped = MappedRows(self.path, len(self.given), self.classes, self.dtype)
        return self._mapped

    def displaced(self, index: Tensor) -> Tensor:
        """(batch, classes) displacements of these samples, in float32 or better."""
        file = self.file
        rows = self.displacement[index] if file is None else file.rows[index.cpu()].to(index.device)
        return rows.to(torch.promote_types(rows.dtype, torch.float32))

    def logits(self, index: Tensor) -> Tensor:
        """(batch, classes) label logits of these samples, in float32 or better."""
        rows = self.displaced(index)
        given = self.given[index].unsqueeze(1)
        return rows.scatter_add(1, given, torch.full_like(given, self.start, dtype=rows.dtype))

    def log_soft(self, index: Tensor) -> Tensor:
        """log of the soft labels."""
        return self.logits(index).log_softmax(1)

    def soft(self, index: Tensor) -> Tensor:
        """The soft labels: rows that sum to one."""
        return self.logits(index).softmax(1)

    @torch.no_grad()
    def add(self, index: Tensor, change: Tensor) -> None:
        """Add to the label logits of these samples, and of no others."""
        if self.file is None:
            # Via a float32 copy of the rows: adding in float16 would lose small changes to large rows twice.
            rows = self.displacement[index].to(change.dtype) + change
            self.displacement[index] = rows.to(self.displacement.dtype)
        else:
            self.file.add(index.cpu(), change.cpu())

    def checkpointed(self) -> None:
        """The checkpoint with this table's state is safely on disk: older journals are no longer needed."""
        if self.file is not None:
            self.file.forget_older()

    def get_extra_state(self) -> dict[str, Any]:
        """With a file, a checkpoint holds only the name of the journal that leads back to it."""
        return {"generation": self.file.begin_generation() if self.file is not None else 0}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if self.file is not None:
            self.file.roll_back(int(state["generation"]))

    def extra_repr(self) -> str:
        where = "in memory" if self.path is None else f"in {self.path}"
        return f"{len(self.given)} samples, {self.classes} classes, {where}"


class MappedRows:
    """A matrix in a memory-mapped file with an undo journal.

    The journal of generation g holds the old values of the rows changed since checkpoint g. Taking a checkpoint begins
    generation g+1; going back to checkpoint g undoes the newest journals first, down to g. Older ones are deleted only
    after the next checkpoint is on disk, so a process killed at any moment finds its way back.
    """

    def __init__(self, path: Path, rows: int, columns: int, dtype: torch.dtype) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        size = rows * columns * torch.empty(0, dtype=dtype).element_size()
        existed = self.path.exists()
        if existed and self.path.stat().st_size != size:
            raise ValueError(
                f"{self.path} has {self.path.stat().st_size} bytes, a table of {rows} × {columns} needs {size}; "
                "it belongs to other data: delete it or name another file"
            )
        with self.path.open("ab") as file:
            file.truncate(size)  # sparse: untouched rows take no space on disk
        self._rows = torch.from_file(str(self.path), shared=True, size=rows * columns, dtype=dtype).view(rows, columns)
        self._touched = torch.zeros(rows, dtype=torch.bool)
        self.generation = 0
        self._settled = not existed
        if not existed:
            self._journal(0).touch()

    @property
    def rows(self) -> Tensor:
        """The matrix. A file left by a run that never reached a checkpoint is rolled back to its empty start."""
        if not self._settled:
            if not self._journal(0).exists():
                raise ValueError(f"{self.path} belongs to another run; resume that run, or name another file")
            self.roll_back(0)
        return self._rows

    def add(self, index: Tensor, change: Tensor) -> None:
        """Add to these rows, after noting their old values."""
        rows = self.rows
        fresh = index[~self._touched[index]].unique()
        if len(fresh):
            with self._journal(self.generation).open("ab") as journal:
                for row, old in zip(fresh.tolist(), rows[fresh]):
                    journal.write(row.to_bytes(8, "little") + old.numpy().tobytes())
            self._touched[fresh] = True
        rows[index] = (rows[index].to(change.dtype) + change).to(rows.dtype)

    def begin_generation(self) -> int:
        """Called for a checkpoint: what is in the file now is what a return to this generation finds."""
        _ = self.rows
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.generation += 1
        self._journal(self.generation).write_bytes(b"")
        self._touched.zero_()
        return self.generation

    def forget_older(self) -> None:
        """Delete the journals that lead further back than the newest checkpoint."""
        for older in [g for g in self._generations() if g < self.generation]:
            self._journal(older).unlink()

    def roll_back(self, generation: int) -> None:
        """Undo everything since the checkpoint that began this generation."""
        width = self._rows.shape[1] * self._rows.element_size()
        for newer in sorted((g for g in self._generations() if g >= generation), reverse=True):
            data = self._journal(newer).read_bytes()
            # A record cut short by a kill was never followed by its change.
            for start in range(0, len(data) - len(data) % (8 + width), 8 + width):
                row = int.from_bytes(data[start : start + 8], "little")
                old = torch.frombuffer(bytearray(data[start + 8 : start + 8 + width]), dtype=self._rows.dtype)
                self._rows[row] = old
            if newer > generation:
                self._journal(newer).unlink()
        self.generation = generation
        self._journal(generation).write_bytes(b"")
        self._touched.zero_()
        self._settled = True

    def _journal(self, generation: int) -> Path:
        return self.path.with_name(f"{self.path.name}.journal-{generation}")

    def _generations(self) -> list[int]:
        return sorted(int(p.name.rpartition("-")[2]) for p in self.path.parent.glob(f"{self.path.name}.journal-*"))

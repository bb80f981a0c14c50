"""A table of label logits, one row a training sample, addressed by the sample's index and never by batch position."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from ..data.sample_table import SampleTable


class LabelTable(nn.Module):
    """Label logits u_j = start·onehot(given_j) + displacement_j (the paper's y^d); softmax gives the soft label.

    Only the displacement is stored: zero means untouched, so a file of it is sparse and float16 stays precise where it
    matters. With a `path` the table lives in a memory-mapped file that may be larger than memory; the rows as they were
    at the last checkpoint are kept in a journal beside it, and a resumed run rolls back to them.
    """

    given: Tensor

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
        self.register_buffer("given", given, persistent=False)
        self.displacement = SampleTable(len(given), classes, dtype=dtype, device=given.device, path=path)

    def displaced(self, index: Tensor) -> Tensor:
        """(batch, classes) displacements of these samples, in float32 or better."""
        rows = self.displacement[index]
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
        # Via a float32 copy of the rows: adding in float16 would lose small changes to large rows twice.
        self.displacement[index] = self.displacement[index].to(change.dtype) + change

    def extra_repr(self) -> str:
        return f"{len(self.given)} samples, {self.classes} classes"

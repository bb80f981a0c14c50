"""The label table: label logits per training sample, read and written by sample index."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from ..data.sample_table import SampleTable


class LabelTable(nn.Module):
    """Label logits u_j = start·onehot(given_j) + displacement_j (the paper's y^d); their softmax is the soft label.

    Only the displacement is stored: zero means untouched, and float16 stays precise where it
    matters.

    Args:
        given: (samples,) int64 given labels.
        classes: number of classes.
        start: K: label logits start at K·onehot(given).
        dtype: of the stored displacements: float32, float16 or float64.
        path: keep the table in this memory-mapped file, which may be larger than memory. Checkpoints of such a table
            need `displacement.begin_checkpoint()` before and `displacement.end_checkpoint()` after they are written.
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
        """Displacements of these samples.

        Args:
            index: (batch,) positions in the training set; the same for all methods below.

        Returns:
            (batch, classes), in float32 or better.
        """
        rows = self.displacement[index]
        return rows.to(torch.promote_types(rows.dtype, torch.float32))

    def logits(self, index: Tensor) -> Tensor:
        """(batch, classes) label logits of these samples, in float32 or better."""
        rows = self.displaced(index)
        given = self.given[index].unsqueeze(1)
        return rows.scatter_add(1, given, torch.full_like(given, self.start, dtype=rows.dtype))

    def log_soft(self, index: Tensor) -> Tensor:
        """(batch, classes) logarithms of the soft labels."""
        return self.logits(index).log_softmax(1)

    def soft(self, index: Tensor) -> Tensor:
        """(batch, classes) soft labels: rows that sum to one."""
        return self.logits(index).softmax(1)

    def start_soft(self, index: Tensor) -> Tensor:
        """(batch, classes) soft labels before any displacement."""
        logits = torch.zeros(len(index), self.classes, device=self.given.device)
        return logits.scatter_(1, self.given[index].unsqueeze(1), self.start).softmax(1)

    @torch.no_grad()
    def add(self, index: Tensor, change: Tensor) -> None:
        """Add a (batch, classes) change to the label logits of these samples, each at most once in the batch."""
        # In float32: adding in float16 would round small changes twice.
        self.displacement[index] = self.displacement[index].to(change.dtype) + change

    def extra_repr(self) -> str:
        return f"{len(self.given)} samples, {self.classes} classes"

"""The CRC-32 of each file, taken while it is read: no run trains on two versions of a file without noticing."""

from __future__ import annotations

import torch
from torch import Tensor

UNREAD = -1


class FileChecksums:
    """Of the files of a store and of all its parts, by row."""

    def __init__(self, count: int) -> None:
        self.values = torch.full((count,), UNREAD)

    def compare(self, rows: Tensor, values: Tensor) -> Tensor:
        """Which of the files that have just been read differ from what they were at first, as (files,) bool."""
        first = torch.where(self.values[rows] == UNREAD, values, self.values[rows])
        self.values[rows] = first
        return first != values

    def restore(self, values: Tensor) -> None:
        """Take over what an interrupted run has read: it was earlier."""
        self.values = torch.where(values == UNREAD, self.values, values)

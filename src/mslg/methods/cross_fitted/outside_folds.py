"""The samples of a batch that each of several networks learns from: those outside its fold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...data.batch import Batch, Inputs, map_inputs

FEWEST = 2  # batch norm cannot take fewer


class OutsideFolds:
    """Rows of a batch for each network. One with fewer than two samples outside its fold gets the whole batch, in which
    what is not its own has no weight.

    Args:
        batch: noisy or clean samples.
        fold: the fold of every sample, on the host, where rows are chosen without waiting for a device.
        folds: their number.
    """

    def __init__(self, batch: Batch, fold: npt.NDArray[np.int64], folds: int) -> None:
        index = batch.index.cpu().numpy() if batch.host_index is None else batch.host_index
        size, own, device = len(index), fold[index], batch.label.device
        outside = [np.flatnonzero(own != number) for number in range(folds)]
        chosen = [rows if len(rows) >= FEWEST else np.arange(size) for rows in outside]
        self._inputs, self._shape = batch.inputs, (size, folds)
        self.rows = [torch.from_numpy(rows).to(device, non_blocking=True) for rows in chosen]
        self._every = torch.cat(self.rows)
        self._weight: Tensor | None = None
        if any(len(rows) < FEWEST for rows in outside):
            apart = np.concatenate([own[rows] != number for number, rows in enumerate(chosen)])
            self._weight = torch.from_numpy(apart).to(device, non_blocking=True)
        self.label = batch.label.index_select(0, self._every)  # of every network, one after the other

    def inputs(self, number: int) -> Inputs:
        """What this network gets."""
        rows = self.rows[number]
        return map_inputs(lambda tensor: tensor.index_select(0, rows), self._inputs)

    def mean(self, losses: Tensor) -> Tensor:
        """The sum over networks of their mean losses. Over a fixed number: the mean over ranks is then that of one
        process, however folds fall on them."""
        size, folds = self._shape
        return self._weighed(losses).sum() / (size * (1 - 1 / folds))

    def together(self, log_probs: Tensor) -> Tensor:
        """(batch, classes) the geometric mean over the networks that learn from a sample."""
        size, folds = self._shape
        total = log_probs.new_zeros(size, log_probs.shape[1])
        total.index_add_(0, self._every, self._weighed(log_probs.t()).t())
        return (total / (folds - 1)).log_softmax(1)

    def _weighed(self, values: Tensor) -> Tensor:
        return values if self._weight is None else values * self._weight

"""Features of a Gaussian kernel by some of the samples (the Nyström method: Williams and Seeger 2001)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.distributed import gathered

LANDMARKS = 256  # samples whose kernels are the features, about
SQUARED_WIDTH = 1.0  # of the kernel, times half the mean squared distance of two samples
JITTER = 1e-4  # added to the kernel of a landmark with itself: copies would make the matrix singular
ROWS = 2048  # that features are computed of at once: what is in between stays in the cache
BLOCK = 64  # columns of a product with a triangular matrix that are computed at once, without the zeros above them


class Kernel(NamedTuple):
    """A Gaussian kernel by some samples: its features are a linear function of their kernels, and have the products
    that the kernel has between these samples."""

    landmarks: Tensor  # (landmarks, columns)
    whitening: Tensor  # (landmarks, landmarks)

    @classmethod
    def of(cls, landmarks: Tensor) -> Kernel:
        kernel = gaussian(landmarks, landmarks).double()
        lower = torch.linalg.cholesky(kernel + JITTER * torch.eye(len(kernel)).to(kernel))
        unit = torch.eye(len(kernel)).to(kernel)
        return cls(landmarks, torch.linalg.solve_triangular(lower, unit, upper=False).T.to(landmarks))

    def features(self, rows: Tensor) -> Tensor:
        """(n, landmarks)."""
        whitening, found = self.whitening.to(rows), rows.new_empty(len(rows), len(self.landmarks))
        for part, into in zip(rows.split(ROWS), found.split(ROWS), strict=True):
            for columns, product in triangular_product(gaussian(part, self.landmarks), whitening.T):
                into[:, columns] = product
        return found


def features_of(rows: Tensor, kernel: Kernel | None) -> Tensor:
    """The features by a kernel, or the rows and a constant."""
    return torch.cat([rows, rows.new_ones(len(rows), 1)], 1) if kernel is None else kernel.features(rows)


def gaussian(rows: Tensor, others: Tensor) -> Tensor:
    """(n, others) a Gaussian kernel on rows of unit variance."""
    factor = -0.5 / (SQUARED_WIDTH * rows.shape[1])
    lengths, other_lengths = (factor * torch.linalg.vecdot(each, each) for each in (rows, others))
    return torch.addmm(other_lengths, rows, others.T, alpha=-2 * factor).add_(lengths[:, None]).clamp_max_(0).exp_()


def triangular_product(rows: Tensor, lower: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some columns at a time, and these of the product of rows with the transpose of a lower triangular matrix."""
    for start in range(0, len(lower), BLOCK):
        columns = slice(start, start + BLOCK)
        yield columns, rows[:, : start + BLOCK] @ lower[columns, : start + BLOCK].T


def landmarks_of(rows: Tensor, index: Tensor, every: int) -> Tensor:
    """(landmarks, columns) of the samples of all processes, one in `every`."""
    kept = (index % every == 0).nonzero().flatten()
    order = gathered(index[kept]).argsort()
    return gathered(rows[kept])[order]

"""The nearest neighbours of every sample in feature space: exact by scikit-learn, in large sets nearly so by faiss."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

log = logging.getLogger("mslg")

Array = np.ndarray[Any, np.dtype[Any]]
EXACT = 20_000  # samples up to which all distances are computed even if faiss is installed
MOST_EXACT = 100_000  # and if it is not: beyond, they would take hours
LINKS, EFFORT = 32, 128  # of faiss's graph: neighbours per sample, candidates per search


class Neighbors(NamedTuple):
    """The nearest other samples, nearest first."""

    position: Array  # (samples, neighbours)
    distance: Array  # (samples, neighbours) 1 − cosine


def directions(features: Any) -> Array:
    """(samples, …) features as rows of length 1."""
    rows = np.asarray(features, dtype=np.float32).reshape(len(features), -1)
    found: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return found


def nearest_neighbors(rows: Array, count: int) -> Neighbors | None:
    """The nearest others of every row of length 1 by the cosine; None if there are too many rows."""
    count = min(count, len(rows) - 1)
    if len(rows) <= EXACT or (len(rows) <= MOST_EXACT and find_spec("faiss") is None):
        return _without_self(*_exact(rows, count + 1))
    if find_spec("faiss") is None:
        log.warning(
            "duplicates and samples of no class are not looked for: with more than %d samples this takes faiss "
            "(pip install mslg[neighbors])",
            MOST_EXACT,
        )
        return None
    return _without_self(*_approximate(rows, count + 1))


def _exact(rows: Array, count: int) -> tuple[Array, Array]:
    from sklearn.neighbors import NearestNeighbors

    # Of rows of length 1 the Euclidean distance orders as the cosine does, and its brute force runs in parallel.
    found = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(rows)
    distance, index = found.kneighbors(rows)
    return index, distance**2 / 2


def _approximate(rows: Array, count: int) -> tuple[Array, Array]:
    import faiss

    graph = faiss.IndexHNSWFlat(rows.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = graph.hnsw.efSearch = EFFORT
    graph.add(rows)
    cosine, index = graph.search(rows, count)
    return index, 1 - cosine


def _without_self(index: Array, distance: Array) -> Neighbors:
    """A duplicate may come before the sample itself."""
    own = index == np.arange(len(index))[:, None]
    own[~own.any(1), -1] = True  # crowded out by duplicates: the farthest is left out
    shape = (len(index), index.shape[1] - 1)
    return Neighbors(index[~own].reshape(shape), np.maximum(distance[~own].reshape(shape), 0))

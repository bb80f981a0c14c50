"""Locally concentrated noise: whole clusters of a class get the same wrong label.

Algan & Ulusoy: the samples of each class are clustered by k-means on features, logits or the inputs themselves.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Inputs
from .corruption import Corruption, check, transition_of
from .read_arrays import Array, flat_rows


def locally_concentrated(
    label: Tensor,
    rate: float,
    generator: np.random.Generator,
    *,
    classes: int,
    inputs: Inputs = None,
    features: Any = None,
    clusters: int = 20,
) -> Corruption:
    """Change about round(rate·n_i) labels of class i in whole clusters, each to one random other class. Clusters are
    added from the largest to the smallest while the total stays within the rate; if none fits, the smallest is used.

    Args:
        label: (samples,) int64 labels to corrupt.
        rate: the share of labels to change, from 0 to 1.
        generator: of all random draws.
        classes: the number of classes.
        inputs: (samples, ...) of all samples, to cluster.
        features: (samples, features) to cluster instead, as an array or the path of a file.
        clusters: per class.

    Returns:
        The corrupted labels and the transition matrix.
    """
    check(label, rate, classes)
    if (features is None) == (inputs is None):
        passed = "neither" if inputs is None else "both"
        raise ValueError(
            f"locally-concentrated noise clusters the samples and got {passed}: pass inputs, or features (logits or "
            "another array with one row per sample)"
        )
    points = flat_rows(inputs, len(label)) if features is None else flat_rows(features, len(label), "the features")
    cluster = clusters_of(points, label.numpy(), classes, clusters, generator)
    given = label.numpy().copy()
    for own in range(classes):
        members = np.flatnonzero(label.numpy() == own)
        for number in _chosen(np.bincount(cluster[members]), round(rate * len(members))):
            given[members[cluster[members] == number]] = (own + generator.integers(1, classes)) % classes
    after = torch.as_tensor(given)
    return Corruption(after, label, transition_of(label, after, classes))


def clusters_of(points: Array, label: Array, classes: int, clusters: int, generator: np.random.Generator) -> Array:
    """The cluster of each sample within its class, by k-means."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    if clusters < 1:
        raise ValueError(f"clusters={clusters} is not possible; at least 1 cluster per class is needed")
    cluster = np.zeros(len(label), dtype=np.int64)
    for own in range(classes):
        members = np.flatnonzero(label == own)
        if len(members) == 0:
            continue
        kmeans = KMeans(min(clusters, len(members)), n_init=1, random_state=int(generator.integers(2**31)))
        with warnings.catch_warnings():
            # Equal samples result in fewer clusters than requested, which is harmless here.
            warnings.simplefilter("ignore", ConvergenceWarning)
            cluster[members] = kmeans.fit_predict(points[members])
    return cluster


def _chosen(sizes: Array, budget: int) -> list[int]:
    """The clusters to relabel."""
    # The published program requires a total below the budget; here it may equal it, so that a rate of 1 means all.
    order = [int(number) for number in np.argsort(-sizes, kind="stable") if sizes[number] > 0]
    if budget <= 0 or not order:
        return []
    chosen, total = [], 0
    for number in order:
        if total + sizes[number] <= budget:
            chosen.append(number)
            total += int(sizes[number])
    return chosen or order[-1:]

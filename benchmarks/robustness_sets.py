"""The settings of the robustness suite: a data set, a noise, its rate and a number of clean samples, such as
`digits pair 40 20`.

    digits           8 × 8 images: 1,197 for training and cleaning, 600 to test
    digits-uneven    the same with 110, 80, … 6 samples of the ten classes beside the clean ones
    wine, cancer,    scikit-learn's tables: two thirds for training and cleaning
    iris
    trec             questions as TF-IDF vectors; noise `rules`: labels by regular expressions
    cifar            frozen features of 3,000 CIFAR-10 images and the clean ones; noise `human`: labels by people
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
TEACHERS = 60  # samples, at least, that the model of feature-dependent noise learns from: it must err
TABLES = {"wine": "wine", "cancer": "breast_cancer", "iris": "iris"}
WIDTH = {"trec": 64}
DROPOUT = {"trec": 0.5}


class NoisySet(NamedTuple):
    """One setting with one seed. Clean samples are still among the training samples."""

    inputs: Array
    given: Array
    true: Array
    test_inputs: Array
    test: Array
    clean: int


def noisy_set(name: str, seed: int, root: Path) -> NoisySet:
    """The setting of this name."""
    data, noise, rate, clean = name.split()
    random = np.random.default_rng([seed, 1])
    real = None
    if data in LOADERS:
        inputs, true, real, test_inputs, test = LOADERS[data](root)
        size = 3000 + int(clean) if data == "cifar" else None
        chosen = random.permutation(len(true))[:size]
        inputs, true, real = inputs[chosen], true[chosen], real[chosen]
    else:
        inputs, true = table(data)
        order = random.permutation(len(true))
        held_out = 600 if data.startswith("digits") else len(true) // 3
        test_inputs, test = inputs[order[:held_out]], true[order[:held_out]]
        inputs, true = inputs[order[held_out:]], true[order[held_out:]]
        if data == "digits-uneven":
            inputs, true = uneven(inputs, true, int(clean), random)
    given = real if noise in ("rules", "human") else corrupted(inputs, true, noise, int(rate) / 100, seed)
    return NoisySet(inputs, given, true, test_inputs, test, int(clean))


@cache
def table(name: str) -> tuple[Array, Array]:
    """One of scikit-learn's data sets."""
    from sklearn import datasets

    data = getattr(datasets, f"load_{TABLES.get(name, 'digits')}")()
    inputs = data.data.astype(np.float32)
    scaled = inputs / 16 if name.startswith("digits") else (inputs - inputs.mean(0)) / inputs.std(0)
    return scaled, data.target.astype(np.int64)


@cache
def trec(root: Path) -> tuple[Array, ...]:
    """Questions: inputs, true labels, labels by rules, and the test samples."""
    import pandas as pd
    from sklearn.feature_extraction.text import TfidfVectorizer

    rows = pd.read_csv(root / "trec_rules.csv")
    names = sorted(rows.true_label.unique())
    train = (rows.split == "train").to_numpy()
    vectors = TfidfVectorizer(max_features=2048, sublinear_tf=True, dtype=np.float32).fit(rows.text[train])
    true, given = (rows[key].map({name: place for place, name in enumerate(names)}) for key in ("true_label", "label"))
    inputs = vectors.transform(rows.text).toarray()
    true, given = true.to_numpy().astype(np.int64), given.fillna(0).to_numpy().astype(np.int64)
    return inputs[train], true[train], given[train], inputs[~train], true[~train]


@cache
def cifar(root: Path) -> tuple[Array, ...]:
    """Frozen features: inputs, true labels, labels by people, and the test samples."""
    found = np.load(root / "cifar10_features.npz")
    train, test = (found[f"features_{part}"].astype(np.float32) for part in ("train", "test"))
    mean, spread = train.mean(0), train.std(0)
    human = np.load(root / "cifar10_human_aggregate.npy").astype(np.int64)
    labels = (found[f"labels_{part}"].astype(np.int64) for part in ("train", "test"))
    train_labels, test_labels = labels
    return (train - mean) / spread, train_labels, human, (test - mean) / spread, test_labels


LOADERS: dict[str, Callable[[Path], tuple[Array, ...]]] = {"trec": trec, "cifar": cifar}


def uneven(inputs: Array, true: Array, clean: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Class counts from 110 down to 6, and in each class its share of the clean samples."""
    classes = int(true.max()) + 1
    counts = np.round(110 * (6 / 110) ** (np.arange(classes) / (classes - 1))).astype(int)
    kept = [np.flatnonzero(true == c)[: counts[c] + math.ceil(clean / classes)] for c in range(classes)]
    chosen = random.permutation(np.concatenate(kept))
    return inputs[chosen], true[chosen]


def corrupted(inputs: Array, true: Array, noise: str, rate: float, seed: int) -> Array:
    """Noisy labels."""
    import torch

    from mslg.noise import NOISES
    from mslg.runtime.seeds import numpy_generator

    settings: dict[str, Any] = {"fill": True} if noise == "uniform" else {}
    if noise == "feature-dependent":
        settings = {"probabilities": weak_model(inputs, true, np.random.default_rng([seed, 2]))}
    if noise == "matrix":
        settings = {"transition": random_matrix(int(true.max()) + 1, np.random.default_rng([seed, 3]))}
    if noise in ("instance-dependent", "locally-concentrated"):
        settings = {"inputs": torch.from_numpy(inputs)}
    made = NOISES.load(noise)(
        torch.from_numpy(true), rate, numpy_generator(seed, "noise"), classes=int(true.max()) + 1, **settings
    )
    labels: Array = made.label.numpy()
    return labels


def random_matrix(classes: int, random: np.random.Generator) -> Array:
    """A transition matrix in which each class is mistaken for some of the others, at random; its rate is set later."""
    others = random.dirichlet(np.full(classes - 1, 0.5), classes)
    return np.stack([np.insert(row, place, 1.0) / 2 for place, row in enumerate(others)])


def weak_model(inputs: Array, true: Array, random: np.random.Generator) -> Array:
    """(samples, classes) predictions of a model that has seen few samples."""
    from sklearn.linear_model import LogisticRegression

    classes = int(true.max()) + 1
    seen = random.choice(len(true), min(len(true), max(TEACHERS, 10 * classes)), replace=False)
    model = LogisticRegression(C=0.1, max_iter=300).fit(inputs[seen], true[seen])
    probabilities = np.full((len(true), classes), 1e-9)
    probabilities[:, model.classes_] += model.predict_proba(inputs)
    return probabilities / probabilities.sum(1, keepdims=True)

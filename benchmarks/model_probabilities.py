"""Out-of-sample probabilities of three models of different strength on sets with wrong labels whose truth is known.

    cifar human 9                 frozen features of 8,000 CIFAR-10 images, labels by people
    cifar uniform 40, …           the same images with noise that is made
    trec rules 46                 5,113 questions as TF-IDF vectors, labels by regular expressions

The models are scikit-learn's, with few settings changed, trained on the given labels alone and asked by five-fold
cross-validation: what a user would pass to `mslg.find_label_issues`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robustness_sets import LOADERS, corrupted

Array = npt.NDArray[Any]
SETS = [
    "cifar human 9",
    "cifar uniform 40",
    "cifar pair 30",
    "cifar feature-dependent 40",
    "trec rules 46",
]
MODELS = ["logistic regression", "MLP", "k-NN"]
SAMPLES = 8_000
FOLDS = 5


class ModelOutput(NamedTuple):
    """What a model says of a set, beside the truth."""

    probs: Array  # (samples, classes) out of sample
    given: Array
    true: Array
    inputs: Array


def output_of(name: str, model: str, seed: int, *, root: Path, cache: Path) -> ModelOutput:
    """The probabilities of one model on one set, computed once."""
    data, noise, rate = name.split()
    inputs, true, real, *_ = LOADERS[data](root)
    chosen = np.random.default_rng([seed, 1]).permutation(len(true))[:SAMPLES]
    inputs, true, real = inputs[chosen], true[chosen], real[chosen]
    made = noise not in ("rules", "human")
    given = corrupted(inputs, true, noise, int(rate) / 100, seed) if made else real
    path = cache / f"{name} {model} {seed}.npy".replace(" ", "_")
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        np.save(path, _cross_validated(model, inputs, given, seed).astype(np.float32))
    return ModelOutput(np.load(path), given, true, inputs)


def _cross_validated(model: str, inputs: Array, given: Array, seed: int) -> Array:
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    found: Array = cross_val_predict(_new(model, seed), inputs, given, cv=folds, method="predict_proba")
    return found


def _new(model: str, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier

    if model == "logistic regression":
        return LogisticRegression(C=0.1, max_iter=100)
    if model == "MLP":
        return MLPClassifier((128,), max_iter=15, random_state=seed)
    return KNeighborsClassifier(20, weights="distance")

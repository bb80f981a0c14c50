"""Any method as a scikit-learn classifier."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..methods import METHODS
from ..registry import unknown
from .base import Classifier, Network, NewOptimizer


class NoisyLabelClassifier(Classifier):
    """A classifier trained by any of the methods that `mslg list methods` shows.

    method           its name
    method_settings  arguments of its constructor; preset is the name of a set of them
    network          a torch module, or a function of (n_features_in, n_classes) that makes one, fed with the rows as
                     float32; None: a multilayer perceptron with layers of `hidden` widths, on standardised columns
    noise_rate       the share of wrong labels, for methods that have to be told
    transition       (classes, classes) P(given j | true i), for methods that have to be told
    epochs, batch_size, learning_rate, weight_decay   of the training
    optimizer        "sgd", "adam", "adamw", or a function that makes one for parameters
    schedule         of the learning rate: "cosine", "constant" or "steps"
    hold_out         of 200 clean samples or more, hold two fifths out to choose and to measure on
    fdr              call as many labels issues as there may be for at most this part of them to be right after all
    device           "auto", "cpu", "cuda" and so on
    random_state     a number for the same result every time
    verbose          show the progress
    """

    def __init__(
        self,
        *,
        method: str = "mslg",
        method_settings: Mapping[str, Any] | None = None,
        preset: str | None = None,
        network: Network | None = None,
        hidden: Sequence[int] = (256,),
        noise_rate: float | None = None,
        transition: Any = None,
        epochs: int = 30,
        batch_size: int = 64,
        optimizer: str | NewOptimizer = "sgd",
        learning_rate: float = 0.05,
        weight_decay: float = 1e-4,
        schedule: str = "cosine",
        hold_out: bool = True,
        fdr: float | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.method_settings = method_settings
        self.preset = preset
        self.network = network
        self.hidden = hidden
        self.noise_rate = noise_rate
        self.transition = transition
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.hold_out = hold_out
        self.fdr = fdr
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _method(self) -> str:
        return self.method

    def _settings(self) -> dict[str, Any]:
        settings = dict(self.method_settings or {})
        allowed = [name for name in inspect.signature(METHODS.load(self.method)).parameters if name != "task"]
        for name in settings:
            if name not in allowed:
                raise unknown(f"setting of {self.method} in method_settings", name, allowed)
        return {"noise_rate": self.noise_rate, "transition": self.transition, **settings}

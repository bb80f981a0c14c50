"""Any method as a scikit-learn classifier."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..methods import METHODS
from ..registry import unknown
from ..runs.settings import DEFAULT_METHOD
from .base import Classifier, Network, NewOptimizer, with_shared_docs


@with_shared_docs
class NoisyLabelClassifier(Classifier):
    """A classifier trained by any method of `mslg list methods`.

    Parameters
    ----------
    method : str, default="cross-fitted"
        The method's name.
    method_settings : dict, optional
        Arguments of the method's constructor.
    noise_rate : float, optional
        Fraction of wrong labels, for methods that need it.
    transition : array-like of shape (n_classes, n_classes), optional
        P(given = j | true = i), for methods that need it.
    """

    def __init__(
        self,
        *,
        method: str = DEFAULT_METHOD,
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

"""MSLG as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from .base import Classifier, Network, NewOptimizer, with_shared_docs


@with_shared_docs
class MSLGClassifier(Classifier):
    """A classifier trained by MSLG: a soft label for every sample, learned by a meta-gradient on clean samples.

    MSLG's settings are parameters, so that a grid search can tune them; None means MSLG's default.

    Parameters
    ----------
    label_rate : float, optional
        Step size of the label updates; 0 for no label learning.
    look_ahead : float, optional
        Length of the look-ahead step before the clean gradient is taken.
    warm_up : float, optional
        Length of the training before label learning: fraction of the run, or epochs if ≥ 1.
    prior : {"choose", "given", "matrix"}, optional
        What the soft labels start from.
    start, loss, entropy_weight, loss_scale, finish, mode, recompute, clean_every, auto_share, log_offset
        See `mslg.MSLG`.
    """

    SETTINGS: ClassVar = (
        *("label_rate", "look_ahead", "warm_up", "prior", "start", "loss", "entropy_weight", "loss_scale", "finish"),
        *("mode", "recompute", "clean_every", "auto_share", "log_offset"),
    )

    def __init__(
        self,
        *,
        label_rate: float | None = None,
        look_ahead: float | None = None,
        warm_up: float | None = None,
        prior: str | None = None,
        start: float | None = None,
        loss: str | None = None,
        entropy_weight: float | None = None,
        loss_scale: float | None = None,
        finish: float | None = None,
        mode: str | None = None,
        recompute: bool | None = None,
        clean_every: int | None = None,
        auto_share: float | None = None,
        log_offset: float | None = None,
        preset: str | None = None,
        network: Network | None = None,
        hidden: Sequence[int] = (256,),
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
        self.label_rate = label_rate
        self.look_ahead = look_ahead
        self.warm_up = warm_up
        self.prior = prior
        self.start = start
        self.loss = loss
        self.entropy_weight = entropy_weight
        self.loss_scale = loss_scale
        self.finish = finish
        self.mode = mode
        self.recompute = recompute
        self.clean_every = clean_every
        self.auto_share = auto_share
        self.log_offset = log_offset
        self.preset = preset
        self.network = network
        self.hidden = hidden
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
        return "mslg"

    def _settings(self) -> dict[str, Any]:
        settings = {name: getattr(self, name) for name in self.SETTINGS}
        return {name: value for name, value in settings.items() if value is not None}

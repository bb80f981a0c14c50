"""The result of a run: the model, the labels, the metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from ..issues.label_rows import label_frame
from ..review.gain import choose_reviews
from ..runs.execute import Outcome
from ..runs.folder import Run
from ..runs.load_model import features_of
from ..runs.new_inputs import NewInputs
from ..runs.predict import probabilities
from ..runtime import distributed
from ..training.method import Method


@dataclass
class Result:
    """The result of a run.

    Attributes:
        history: (epochs, metrics) the metrics of every epoch.
        summary: the numbers of the run; "label_errors" holds the estimated number of wrong labels, where available.
        classes: the class names, in the order of the logits.
        run: the run's folder, or None.
    """

    history: pd.DataFrame
    summary: dict[str, Any]
    classes: tuple[str, ...]
    run: Run | None
    outcome: Outcome | None = field(repr=False)  # None for a run that was loaded from its folder
    load: Callable[[], tuple[nn.Module, NewInputs]] = field(repr=False)

    @classmethod
    def of(cls, outcome: Outcome) -> Result:
        """The result of an executed run."""
        history = pd.DataFrame([{"epoch": record.epoch, **record.metrics} for record in outcome.records])
        data = outcome.data
        inputs = NewInputs.of(
            data.source, data.augment, None if outcome.run is None else features_of(outcome.run.config)
        )
        network = outcome.method.deployed()
        return cls(history, outcome.summary, data.source.classes, outcome.run, outcome, lambda: (network, inputs))

    @cached_property
    def _loaded(self) -> tuple[nn.Module, NewInputs]:
        return self.load()

    @property
    def model(self) -> nn.Module:
        """The trained network, as it was passed to `fit`: it returns logits."""
        return self._loaded[0]

    @property
    def method(self) -> Method:
        """The method that was trained."""
        return self._fitted().method

    def _fitted(self) -> Outcome:
        if self.outcome is None:
            raise ValueError(
                f"this result was loaded from {'its folder' if self.run is None else self.run.path}, which has the "
                "model and the labels but not the method in memory; use the result that fit returned, or "
                "fit(resume=True)"
            )
        return self.outcome

    def predict_proba(self, X: Any, *, loader: Mapping[str, Any] | None = None) -> np.ndarray[Any, Any]:
        """(samples, classes) probabilities, columns in the order of `classes`.

        Args:
            X: inputs as `fit` takes them: an array or tensor, a tuple or dict of them, a Dataset or DataLoader with
                or without labels (in the Dataset's order), a list of texts or a table if the run was on such; or a
                path or data set's name as for `mslg predict`.
            loader: options of a DataLoader with which a Dataset is read, such as collate_fn; those that `fit` was given
                by default, unless the run was loaded from its folder.
        """
        return probabilities(*self._loaded, X, loader)

    def predict(self, X: Any, *, loader: Mapping[str, Any] | None = None) -> np.ndarray[Any, Any]:
        """(samples,) the most probable class of each sample, by name. Arguments as in `predict_proba`."""
        names: np.ndarray[Any, Any] = np.array(self.classes, dtype=object)
        found: np.ndarray[Any, Any] = names[self.predict_proba(X, loader=loader).argmax(1)]
        return found

    @cached_property
    def labels(self) -> pd.DataFrame:
        """One row per training sample: given, predicted and suggested label, quality, rank."""
        if self.outcome is None or self.outcome.issues is None:  # loaded, or written by the main process of several
            assert self.run is not None
            return pd.read_parquet(self.run.path / "labels.parquet")
        return label_frame(self.outcome.issues)

    @cached_property
    def soft_labels(self) -> np.ndarray[Any, Any]:
        """(training samples, classes), rows in the order of `labels`."""
        return np.stack(self.labels["soft_label"].to_list())

    def review_next(self, count: int = 50) -> pd.DataFrame:
        """The samples whose review would help the clean loss most.

        Args:
            count: how many.

        Returns:
            A table with the columns id, rank, given_label, suggested_label, gain, the most worthwhile first.
        """
        with distributed.single_process():
            return choose_reviews(self.model, self._fitted().data, self.labels, count=count)

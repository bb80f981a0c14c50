"""The result of a run: the model, the labels, the metrics."""

from __future__ import annotations

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
from ..runtime import distributed
from ..training.method import Method


@dataclass
class Result:
    """The result of a run.

    Attributes:
        model: the trained network.
        history: (epochs, metrics) the metrics of every epoch.
        summary: the numbers of the run; "label_errors" holds the estimated number of wrong labels, where available.
        classes: the class names, in the order of the logits.
        run: the run's folder, or None.
    """

    model: nn.Module
    history: pd.DataFrame
    summary: dict[str, Any]
    classes: tuple[str, ...]
    run: Run | None
    outcome: Outcome = field(repr=False)

    @classmethod
    def of(cls, outcome: Outcome) -> Result:
        """The result of an executed run."""
        history = pd.DataFrame([{"epoch": record.epoch, **record.metrics} for record in outcome.records])
        classes = outcome.data.source.classes
        return cls(outcome.method.deployed(), history, outcome.summary, classes, outcome.run, outcome)

    @property
    def method(self) -> Method:
        """The method that was trained."""
        return self.outcome.method

    @cached_property
    def labels(self) -> pd.DataFrame:
        """One row per training sample: given, predicted and suggested label, quality, rank."""
        done = self.outcome
        if done.issues is None:  # distributed: the main process has written the labels of all
            assert done.run is not None
            return pd.read_parquet(done.run.path / "labels.parquet")
        return label_frame(done.issues)

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
            return choose_reviews(self.model, self.outcome.data, self.labels, count=count)

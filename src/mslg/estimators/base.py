"""What the classifiers share: `mslg.fit` inside, its results as attributes."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from ..data.batch import call
from ..data.source import Source
from ..fitting.fit import fit
from ..fitting.prepare import device_named
from ..fitting.result import Result
from ..methods import METHODS
from ..networks.mlp import MLP
from ..registry import unknown
from .clean_samples import Array, checked_labels, checked_mask, refuse_shared

Network = nn.Module | Callable[[int, int], nn.Module]
NewOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

PIECE = 4096  # rows predicted at a time


class Rows:
    """Rows of a table as inputs. In a table of few values equal rows are common, and are different samples."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        for index in indices:
            yield self.rows[index]


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier for labels that are partly wrong. A subclass says which method, and what it is told.

    After `fit`; a row is a row of X:

    classes_, n_features_in_, feature_names_in_   as everywhere in scikit-learn
    label_issues_       a table of the labels that are probably wrong, the worst first: `row` (its position in X),
                        `given_label`, `predicted_label`, `suggested_label`, `label_quality`
    label_quality_      (rows,) the probability that the label is right; NaN for clean rows
    suggested_labels_   (rows,) y with the issues corrected
    soft_labels_        (rows, classes) the labels learned; of clean rows the verified ones
    history_, n_iter_   a table with a row for each epoch; the number of epochs
    summary_            the run in numbers: under "label_errors" how many labels are wrong, where that can be told
    network_            the trained network, in evaluation mode on the CPU
    """

    # What clean samples are is theirs to know: routed here without being asked for.
    __metadata_request__fit: ClassVar = {"clean": True, "clean_mask": True}

    network: Network | None
    hidden: Sequence[int]
    preset: str | None
    epochs: int
    batch_size: int
    optimizer: str | NewOptimizer
    learning_rate: float
    weight_decay: float
    schedule: str
    hold_out: bool
    fdr: float | None
    device: str
    random_state: int | np.random.RandomState | None
    verbose: bool

    def fit(self, X: Any, y: Any, clean: Any = None, clean_mask: Any = None) -> Classifier:
        """Learn from rows X with labels y, some of which are wrong.

        clean        verified samples (Xc, yc) that are not in X; or "auto": rows of X with small losses
        clean_mask   (rows,) True for the rows of X whose y is verified: they are the clean samples
        """
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_[0]!r}; a classifier needs at least two")
        if clean is not None and clean_mask is not None:
            raise ValueError("clean and clean_mask are both given; mark clean rows of X, or give others beside it")
        noisy = np.arange(len(X))
        verified: tuple[Array, Array] | str | None
        if clean_mask is not None:
            mask = checked_mask(clean_mask, len(X))
            noisy, verified = np.flatnonzero(~mask), (X[mask], codes[mask])
        elif clean is None or isinstance(clean, str):
            verified = self._without_clean(clean, len(X))
        else:
            verified = self._beside(X, clean)
        self.scaler_ = StandardScaler().fit(X) if self.network is None else None
        result = fit(
            _network(self.network, self.n_features_in_, len(self.classes_), self.hidden),
            self._source(X[noisy], codes[noisy]),
            self._source(*verified) if isinstance(verified, tuple) else verified,
            method=self._method(),
            preset=self.preset,
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            schedule=self.schedule,
            hold_out=self.hold_out,
            fdr=self.fdr,
            seed=self._seed(),
            device=self.device,
            progress=bool(self.verbose),
            **self._settings(),
        )
        self._keep(result, codes, noisy)
        return self

    def predict(self, X: Any) -> Array:
        """(rows,) the most probable class of each."""
        check_is_fitted(self, "network_")
        found: Array = self.classes_[self.predict_proba(X).argmax(1)]
        return found

    def predict_proba(self, X: Any) -> Array:
        """(rows, classes) probabilities, in the order of `classes_`."""
        check_is_fitted(self, "network_")
        rows = self._inputs(validate_data(self, X, reset=False)).to(next(self.network_.parameters()).dtype)
        where = device_named(self.device)
        network = self.network_ if where.type == "cpu" else copy.deepcopy(self.network_).to(where)
        with torch.inference_mode():
            parts = [call(network, piece.to(where)).double().softmax(1).cpu() for piece in rows.split(PIECE)]
        found: Array = torch.cat(parts).numpy()
        return found

    def _method(self) -> str:
        """The name of the method."""
        raise NotImplementedError

    def _settings(self) -> dict[str, Any]:
        """Arguments of `mslg.fit` that the method is told by."""
        raise NotImplementedError

    def _without_clean(self, clean: str | None, rows: int) -> str | None:
        """What stands in for a clean set: rows with small losses, or nothing where the method needs none."""
        name = self._method()
        if clean not in (None, "auto"):
            raise unknown("kind of clean set", clean, ["auto"])
        if clean is None and "clean set" not in METHODS[name].needs:
            return None
        if "auto_clean" not in inspect.signature(METHODS.load(name)).parameters:
            raise ValueError(
                f"{name} cannot choose clean samples itself; pass clean=(Xc, yc), verified samples that are not in X, "
                "or clean_mask=, True for the rows of X that are verified"
            )
        if rows < len(self.classes_) + 2:
            raise ValueError(
                f"X has {rows} rows of {len(self.classes_)} classes, too few to take clean samples out of them; pass "
                "more rows, or clean=(Xc, yc)"
            )
        if clean is None:
            warnings.warn(
                "there are no clean samples, so rows with small losses are taken in their place: right only as far as "
                "wrong labels are hard to learn. Better verify some (1-2 % are enough) and pass clean=(Xc, yc) or "
                'clean_mask=. clean="auto" does the same without this warning',
                stacklevel=3,
            )
        return "auto"

    def _beside(self, X: Array, clean: Any) -> tuple[Array, Array]:
        """Verified rows that are not in X, with the numbers of their classes."""
        if not isinstance(clean, tuple | list) or len(clean) != 2:
            raise TypeError(f"clean is a {type(clean).__name__}; give verified samples as a pair (Xc, yc)")
        rows = validate_data(self, clean[0], reset=False, ensure_min_samples=0)
        codes = checked_labels(clean[1], len(rows), self.classes_)
        refuse_shared(X, rows)
        return rows, codes

    def _source(self, rows: Array, codes: Array) -> Source:
        names = tuple(str(each) for each in self.classes_)
        places = tuple(str(place) for place in range(len(rows)))
        return Source(Rows(self._inputs(rows).float()), torch.as_tensor(codes), names, places, ids_given=False)

    def _inputs(self, rows: Array) -> Tensor:
        """Standardised for the built-in network; one of the user's gets the rows as they are."""
        rows = rows.astype(np.float64)
        return torch.from_numpy(rows if self.scaler_ is None else self.scaler_.transform(rows))

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _keep(self, result: Result, codes: Array, noisy: Array) -> None:
        """What is worth keeping of a run. The run itself holds on to the data."""
        table = result.labels
        number = {name: code for code, name in enumerate(result.classes)}
        predicted, suggested = (table[f"{kind}_label"].map(number).to_numpy() for kind in ("predicted", "suggested"))
        quality = table["label_quality"].to_numpy()
        corrected = codes.copy()
        corrected[noisy] = suggested
        self.suggested_labels_ = self.classes_[corrected]
        self.label_quality_ = np.full(len(codes), np.nan)
        self.label_quality_[noisy] = quality
        self.soft_labels_ = np.eye(len(self.classes_), dtype=np.float32)[codes]
        self.soft_labels_[noisy] = result.soft_labels
        worst = table["rank"].to_numpy().argsort()
        worst = worst[table["is_label_issue"].to_numpy()[worst]]
        self.label_issues_ = pd.DataFrame(
            {
                "row": noisy[worst],
                "given_label": self.classes_[codes[noisy[worst]]],
                "predicted_label": self.classes_[predicted[worst]],
                "suggested_label": self.classes_[suggested[worst]],
                "label_quality": quality[worst],
            }
        )
        self.history_, self.n_iter_, self.summary_ = result.history, len(result.history), result.summary
        self.network_ = result.model.cpu().eval()
        if self.network is None:
            self.network_.double()  # a prediction must not depend on the rows that it is made together with


def _network(network: object, features: int, classes: int, hidden: Sequence[int]) -> nn.Module | Callable[[], Any]:
    """The network to train, or what makes it."""
    if network is None:
        return partial(MLP, features, classes, hidden=tuple(hidden))
    if isinstance(network, nn.Module):
        return copy.deepcopy(network)  # the argument stays as it is
    if callable(network):
        return partial(network, features, classes)
    raise TypeError(
        f"network is {network!r}; give a torch module, a function of (n_features_in, n_classes) that makes one, or "
        "None for a multilayer perceptron"
    )

"""The base class of the classifiers: it calls `mslg.fit` and keeps the results as attributes."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
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
C = TypeVar("C", bound=type)

PIECE = 4096  # rows predicted at a time

# The end of both classifiers' docstrings: the rest of the parameters, and the attributes.
SHARED = """\
preset : str, optional
    A named set of the method's settings, such as "fast".
network : nn.Module or callable, optional
    A torch module, or a function of (n_features_in, n_classes) that returns one. Its input is X as float32.
    By default a multilayer perceptron on standardised features.
hidden : sequence of int, default=(256,)
    Widths of the default network's hidden layers.
epochs : int, default=30
    Passes over the training data.
batch_size : int, default=64
    Samples per step.
optimizer : {"sgd", "adam", "adamw"} or callable, default="sgd"
    An optimizer's name, or a function of the parameters that returns one.
learning_rate, weight_decay : float, default=0.05, 1e-4
    Of the optimizer.
schedule : str, default="cosine"
    Learning-rate schedule: "cosine", "constant" or "steps".
hold_out : bool, default=True
    Hold out up to two fifths of the clean samples, for selection and for evaluation, where there are enough of them.
fdr : float, optional
    Flag as many labels as possible while keeping the false discovery rate below this.
device : str, default="auto"
    "auto", "cpu", "cuda", "cuda:1", …
random_state : int, RandomState or None, default=None
    Pass an int for reproducible results.
verbose : bool, default=False
    Show a progress bar.

Attributes
----------
classes_, n_features_in_, feature_names_in_
    As in every scikit-learn classifier.
label_issues_ : DataFrame
    Labels that are probably wrong, worst first, with the index of X if it is a data frame: `row` (position in X),
    `given_label`, `predicted_label`,
    `suggested_label`, `label_quality`.
label_quality_ : ndarray of shape (n_samples,)
    Probability that each label is right; NaN for clean samples.
suggested_labels_ : ndarray of shape (n_samples,)
    y with the issues corrected.
soft_labels_ : ndarray of shape (n_samples, n_classes)
    The learned labels; for clean samples, the verified ones.
history_ : DataFrame
    Metrics per epoch.
n_iter_ : int
    Number of epochs.
summary_ : dict
    The numbers of the run; "label_errors" holds the estimated number of wrong labels where it can be estimated.
network_ : nn.Module
    The trained network, in evaluation mode on the CPU."""


class Rows:
    """The rows of X as inputs. Equal rows count as different samples: they are common where features are discrete."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        for index in indices:
            yield self.rows[index]


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier for partly wrong labels. Subclasses choose the method and its arguments."""

    # Metadata routing passes these to fit without set_fit_request.
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

    def fit(
        self, X: Any, y: Any, clean: Any = None, clean_mask: Any = None, *, sample_weight: Any = None
    ) -> Classifier:
        """Fit the classifier to X and partly wrong labels y.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        clean : (Xc, yc) or "auto", optional
            Verified samples that are not in X; or "auto" to use low-loss samples of X.
        clean_mask : array-like of bool of shape (n_samples,), optional
            True where y is verified; these samples are the clean set.
        sample_weight : array-like of shape (n_samples,), optional
            How often each row is drawn in training, relative to the others; 0 for never. Those of clean rows are not
            used. An error for methods that do not train on rows with unverified labels.
        """
        index = X.index if isinstance(X, pd.DataFrame) else None
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_[0]!r}; a classifier needs at least two")
        if clean is not None and clean_mask is not None:
            raise ValueError("clean and clean_mask are both given; pass clean= for samples outside X, else clean_mask=")
        noisy = np.arange(len(X))
        verified: tuple[Array, Array] | str | None
        if clean_mask is not None:
            mask = checked_mask(clean_mask, len(X))
            noisy, verified = np.flatnonzero(~mask), (X[mask], codes[mask])
        elif clean is None or isinstance(clean, str):
            verified = self._without_clean(clean, len(X))
        else:
            verified = self._beside(X, clean)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)[noisy]
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
            sample_weights=weights,
            **self._settings(),
        )
        self._keep(result, codes, noisy, index)
        return self

    def predict(self, X: Any) -> Array:
        """Predict the most probable class of each sample, shape (n_samples,)."""
        check_is_fitted(self, "network_")
        found: Array = self.classes_[self.predict_proba(X).argmax(1)]
        return found

    def predict_proba(self, X: Any) -> Array:
        """Predict class probabilities, shape (n_samples, n_classes), columns in the order of `classes_`."""
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
        """Further arguments of `mslg.fit`, those of the method's constructor among them."""
        raise NotImplementedError

    def _without_clean(self, clean: str | None, rows: int) -> str | None:
        """The replacement for a clean set: "auto" (low-loss samples), or None if the method needs no clean set."""
        name = self._method()
        if clean not in (None, "auto"):
            raise unknown("kind of clean set", clean, ["auto"])
        if clean is None and "clean set" not in METHODS[name].needs:
            return None
        if "auto_clean" not in inspect.signature(METHODS.load(name)).parameters:
            raise ValueError(
                f"{name} cannot choose clean samples itself; pass clean=(Xc, yc), verified samples that are not in X, "
                "or clean_mask=, True for the verified rows of X"
            )
        if rows < len(self.classes_) + 2:
            raise ValueError(
                f"X has {rows} rows of {len(self.classes_)} classes, too few to choose clean samples from; pass more "
                "rows, or clean=(Xc, yc)"
            )
        if clean is None:
            warnings.warn(
                "there are no clean samples, so low-loss rows of X are used instead, which works only if wrong labels "
                "are hard to learn. It is better to verify some labels (1-2 % are enough) and pass clean=(Xc, yc) or "
                'clean_mask=. Pass clean="auto" to silence this warning',
                stacklevel=3,
            )
        return "auto"

    def _beside(self, X: Array, clean: Any) -> tuple[Array, Array]:
        """Verified rows that are not in X, and their class indices."""
        if not isinstance(clean, tuple | list) or len(clean) != 2:
            raise TypeError(f"clean is a {type(clean).__name__}; pass verified samples as a pair (Xc, yc)")
        rows = validate_data(self, clean[0], reset=False, ensure_min_samples=0)
        codes = checked_labels(clean[1], len(rows), self.classes_)
        refuse_shared(X, rows)
        return rows, codes

    def _source(self, rows: Array, codes: Array) -> Source:
        names = tuple(str(each) for each in self.classes_)
        places = tuple(str(place) for place in range(len(rows)))
        return Source(Rows(self._inputs(rows).float()), torch.as_tensor(codes), names, places, ids_given=False)

    def _inputs(self, rows: Array) -> Tensor:
        """The rows as a tensor, standardised for the default network only."""
        rows = rows.astype(np.float64)
        return torch.from_numpy(rows if self.scaler_ is None else self.scaler_.transform(rows))

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _keep(self, result: Result, codes: Array, noisy: Array, index: pd.Index | None) -> None:
        """Set the fitted attributes. The result itself is not kept, since it references the data; `index` is that of a
        data frame X."""
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
            },
            index=None if index is None else index[noisy[worst]],
        )
        self.history_, self.n_iter_, self.summary_ = result.history, len(result.history), result.summary
        self.network_ = result.model.cpu().eval()
        if self.network is None:
            self.network_.double()  # so that a prediction does not depend on the other rows of its batch


def with_shared_docs(classifier: C) -> C:
    """Complete the docstring of a classifier, which ends in its own parameters."""
    classifier.__doc__ = f"{inspect.cleandoc(classifier.__doc__ or '')}\n{SHARED}\n"
    return classifier


def _network(network: object, features: int, classes: int, hidden: Sequence[int]) -> nn.Module | Callable[[], Any]:
    """The network to train, or a function that makes it."""
    if network is None:
        return partial(MLP, features, classes, hidden=tuple(hidden))
    if isinstance(network, nn.Module):
        return copy.deepcopy(network)  # fit must not modify its parameters
    if callable(network):
        return partial(network, features, classes)
    raise TypeError(
        f"network is {network!r}; pass a torch module, a function of (n_features_in, n_classes) that returns one, or "
        "None for a multilayer perceptron"
    )

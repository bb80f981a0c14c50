"""From any model's probabilities to label issues: classes and samples matched by name, several models combined by
weights that are fitted on the verified samples, and these samples as evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.readers.probabilities import ModelProbabilities
from ..data.sample_table import pieces_of
from ..data.source import Source
from ..data.stores import Located
from ..training.stacking import fit_weights, floored
from .evidence import Evidence, Predictions, VerifiedSamples

Array = np.ndarray[Any, np.dtype[Any]]
ROUNDING = 1e-2  # by how much the probabilities of a sample may miss a sum of 1


@dataclass(frozen=True)
class Model:
    """What one model says of the samples of a source."""

    values: Array  # (rows, columns)
    row: Array | None = None  # of each sample; None: in the same order
    column: Array | None = None  # of each class; None: in the same order
    complete: bool = True  # whether there are probabilities for every sample

    def __call__(self, positions: Tensor) -> Tensor:
        """(positions, classes) probabilities that sum to 1; NaN where there are none."""
        rows = positions.numpy() if self.row is None else self.row[positions.numpy()]
        found = self.values[rows]
        found = found if self.column is None else found[:, self.column]
        probs = torch.from_numpy(np.asarray(found, dtype=np.float32))  # indexing has copied
        return probs.div_(probs.sum(1, keepdim=True))


@dataclass(frozen=True)
class Models:
    """One or more models; several are combined as a weighted sum of their logarithms."""

    models: Sequence[Model]
    weights: Tensor

    def __call__(self, positions: Tensor) -> Tensor:
        """(positions, classes) probabilities; the same for all classes where a model says nothing."""
        if len(self.models) == 1:
            found = self.models[0](positions)
            return found if self.models[0].complete else torch.nan_to_num(found, nan=1 / self.classes)
        return torch.nan_to_num(combined(self.logs(positions), self.weights), nan=1 / self.classes)

    @property
    def classes(self) -> int:
        model = self.models[0]
        return model.values.shape[1] if model.column is None else len(model.column)

    def logs(self, positions: Tensor) -> Tensor:
        """(models, positions, classes) logarithms, none lower than a prediction can mean."""
        return torch.stack([floored(model(positions).log()) for model in self.models])

    def known(self, samples: int) -> Tensor | None:
        """(samples,) whether every model has probabilities; None if all have."""
        if all(model.complete for model in self.models):
            return None
        parts = [
            torch.stack([~model(piece)[:, 0].isnan() for model in self.models]).all(0)
            for piece in pieces_of(torch.arange(samples), self.classes)
        ]
        return torch.cat(parts)


def combined(logs: Tensor, weights: Tensor) -> Tensor:
    """(n, classes) probabilities from (models, n, classes) logarithms."""
    return torch.einsum("m,mnc->nc", weights, logs).softmax(1).float()


def match_classes(
    source: Source, found: Sequence[ModelProbabilities], classes: Sequence[str] | None
) -> tuple[Source, list[Model]]:
    """The source with the classes of the models, and the models by sample and class of the source.

    Args:
        source: the given labels.
        found: the models' probabilities.
        classes: of the columns, where these have no names.
    """
    named = next((each.columns for each in found if each.columns is not None), None)
    columns = None if classes is None else tuple(map(str, classes))
    source = _with_classes(source, columns or named or source.classes, found[0])
    return source, [_matched(each, source, columns) for each in found]


def _with_classes(source: Source, columns: tuple[str, ...], first: ModelProbabilities) -> Source:
    """The source with all classes that the models know of."""
    width = first.values.shape[1]
    unknown = [name for name in source.classes if name not in set(columns)]
    present = source.label.unique().tolist()
    unknown = [name for name in unknown if source.classes.index(name) in present]
    if unknown:
        raise ValueError(
            f"{first.name} has no column for the class '{unknown[0]}' ({len(unknown)} classes of the labels lack one); "
            f"its classes are {_some(columns)}"
        )
    if first.columns is None and columns == source.classes and width > len(columns) and _numbered(columns):
        columns = tuple(map(str, range(width)))  # a class that no label has
    if set(columns) == set(source.classes):
        return source
    number = torch.tensor([columns.index(name) if name in columns else -1 for name in source.classes] + [-1])
    change = {
        key: None if labels is None else number[labels]
        for key, labels in {
            "label": source.label,
            "verified_label": source.verified_label,
            "true_label": source.true_label,
        }.items()
    }
    return replace(source, classes=columns, **change)  # type: ignore[arg-type]


def _matched(found: ModelProbabilities, source: Source, classes: tuple[str, ...] | None) -> Model:
    values, columns, ids, name = found
    columns = columns if classes is None or columns is not None else classes
    if columns is None and values.shape[1] != len(source.classes):
        raise ValueError(
            f"{name} has {values.shape[1]} columns, and the labels have {len(source.classes)} classes "
            f"({_some(source.classes)}); pass classes= (--classes), the class of each column, or name the columns"
        )
    place = None
    if columns is not None and columns != source.classes:
        at = {each: number for number, each in enumerate(columns)}
        missing = [each for each in source.classes if each not in at]
        if missing or len(at) != len(source.classes):
            raise ValueError(
                f"{name} has the classes {_some(columns)}, but {_some(source.classes)} were expected; all models need "
                "the same classes"
            )
        place = np.array([at[each] for each in source.classes])
    row = _rows(ids, source, name) if ids is not None else None
    if row is None and len(values) != len(source):
        raise ValueError(
            f"{name} has {len(values)} rows for {len(source)} labels; pass a row per label, in their order, or a table "
            "with the column id"
        )
    model = Model(values, row, place)
    return replace(model, complete=_check(model, len(source), len(source.classes), name))


def _rows(ids: tuple[str, ...], source: Source, name: str) -> Array | None:
    """The row of each sample."""
    if len(ids) == len(source) and all(a == b for a, b in zip(ids, source.ids, strict=True)):
        return None
    at = {each: number for number, each in enumerate(ids)}
    missing = [each for each in source.ids if each not in at]
    if missing:
        raise ValueError(
            f"{name} has no row for {len(missing)} of {len(source)} samples, such as '{missing[0]}'; its ids must be "
            "those of the labels"
        )
    return np.array([at[each] for each in source.ids])


def _check(model: Model, samples: int, classes: int, name: str) -> bool:
    """Refuse what are no probabilities; return whether there are some for every sample."""
    low, high, off, complete = np.inf, -np.inf, 0.0, True
    for piece in pieces_of(torch.arange(samples), classes):
        rows = piece.numpy() if model.row is None else model.row[piece.numpy()]
        values = model.values[rows]
        total = values.sum(1, dtype=np.float64)
        missing = np.isnan(total)
        if missing.any():
            values, total, complete = values[~missing], total[~missing], False
        if values.size:
            low, high = min(low, float(values.min())), max(high, float(values.max()))
            off = max(off, float(np.abs(total - 1).max()))
    if low == np.inf:
        raise ValueError(f"{name} has no probabilities: every row has a NaN")
    if low < 0 or off > ROUNDING:
        what = f"values from {low:.4g} to {high:.4g}, and rows that miss a sum of 1 by up to {off:.4g}"
        raise ValueError(f"{name} has {what}; pass probabilities: a softmax of logits, or scores divided by their sum")
    return complete


def predictions_of(models: Models, source: Source, positions: Tensor) -> Predictions:
    """What the models say of the samples at these positions."""
    store = source.store
    known = models.known(len(source))

    def paths(places: Tensor) -> list[str]:
        assert isinstance(store, Located)
        return [str(store.path(place)) for place in positions[places].tolist()]

    return Predictions(
        given=source.label[positions],
        classes=source.classes,
        probs=lambda places: models(positions[places]),
        ids=lambda places: source.ids_at(positions[places]),
        paths=paths if isinstance(store, Located) else None,
        known=None if known is None else known[positions],
    )


def weigh_models(models: Sequence[Model], source: Source, verified: Tensor) -> tuple[Models, Evidence]:
    """The models with weights fitted on verified samples, and these samples as evidence, each predicted with weights
    fitted on others.

    Args:
        models: of the source's samples.
        source: the given labels.
        verified: (samples,) verified labels, −1 where unknown.
    """
    equal = torch.full((len(models),), 1 / len(models), dtype=torch.float64)
    together = Models(models, equal)
    place = (verified >= 0).nonzero().flatten()
    if not len(place):
        return together, Evidence()
    samples = VerifiedSamples(together(place), source.label[place], verified[place], torch.arange(len(place)))
    if len(models) > 1:
        logs, fold = together.logs(place), samples.folds()
        for number in fold.unique().tolist():
            others = fit_weights(logs[:, fold != number], samples.verified[fold != number], centre=equal.tolist())
            samples.probs[fold == number] = combined(logs[:, fold == number], others)
        together = Models(models, fit_weights(logs, samples.verified, centre=equal.tolist()))
    return together, Evidence(samples, cross_fitted=True)


def _numbered(classes: Sequence[str]) -> bool:
    return list(classes) == [str(number) for number in range(len(classes))]


def _some(classes: Sequence[str]) -> str:
    return ", ".join(classes[:10]) + (f", … ({len(classes)})" if len(classes) > 10 else "")

"""New inputs for a trained network: read, encoded and prepared as those it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..data.augmentation import Augment
from ..data.dataset_store import DatasetStore, loader_options
from ..data.images import Frame
from ..data.items import Layout
from ..data.readers.options import Reading
from ..data.source import Positions, Source, is_dataset
from ..data.stores import InputStore, TensorStore
from ..data.texts import TextStore, Vocabulary, vocabulary_of
from ..data.unlabelled import Unlabelled, open_unlabelled
from ..networks.features import backbone, extract


@dataclass(frozen=True)
class NewInputs:
    """How new inputs become those of the network.

    Attributes:
        classes: the class names.
        prepare: what is done to a batch of images before the network gets it.
        frame, channels: of image files.
        vocabulary: of texts.
        columns: the features of a table, in order.
        features_of: the backbone whose features are the inputs: network, weights, prepare.
        items: the Dataset of the run, where it is at hand: another one is read in the same way.
        names: of the inputs, if the network was given dicts: other parts of an item are left out.
    """

    classes: tuple[str, ...]
    prepare: Augment
    frame: Frame | None = None
    channels: int = 3
    vocabulary: Vocabulary | None = None
    columns: tuple[str, ...] | None = None
    features_of: Mapping[str, Any] | None = None
    items: DatasetStore | None = None
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, source: Source, augment: Augment, features_of: Mapping[str, Any] | None = None) -> NewInputs:
        """As the inputs of a data set."""
        pictures = next((store for store in _stores(source) if getattr(store, "frame", None) is not None), None)
        columns = getattr(source.store, "columns", None)
        return cls(
            classes=source.classes,
            prepare=augment.prepared(),
            frame=None if pictures is None else pictures.frame,
            channels=3 if pictures is None else _channels(pictures),
            vocabulary=vocabulary_of(source.store),
            columns=None if columns is None else tuple(columns),
            features_of=features_of,
            items=source.store if isinstance(source.store, DatasetStore) else None,
        )

    @classmethod
    def read(cls, folder: Path, about: Mapping[str, Any], prepare: Augment) -> NewInputs:
        """As model.json and vocabulary.json in a folder say."""
        images, columns, inputs = about.get("images"), about.get("columns"), about["inputs"]
        by_name = isinstance(inputs, Mapping) and not isinstance(inputs.get("shape"), list)
        words = folder / "vocabulary.json"
        return cls(
            classes=tuple(about["classes"]),
            prepare=prepare,
            frame=None if images is None else Frame(*images["frame"]),
            channels=3 if images is None else int(images["channels"]),
            vocabulary=Vocabulary.read(words) if words.exists() else None,
            columns=None if columns is None else tuple(columns),
            features_of=about.get("features_of"),
            names=tuple(inputs) if by_name else None,
        )

    def describe(self) -> dict[str, Any]:
        """The entries of model.json that `read` needs, beside those of the network."""
        found: dict[str, Any] = {}
        if self.frame is not None:
            found["images"] = {"frame": list(self.frame), "channels": self.channels}
        if self.columns is not None:
            found["columns"] = list(self.columns)
        if self.features_of is not None:
            found["features_of"] = dict(self.features_of)
        return found

    def open(
        self,
        data: Any,
        *,
        root: Path | str | None = None,
        workers: int | None = None,
        corrupt: str = "error",
        loader: Mapping[str, Any] | None = None,
    ) -> Unlabelled:
        """Inputs, with a name for each.

        Args:
            data: arrays or tensors as `fit` takes them, a list of texts, a table, a Dataset, a DataLoader, or what
                to open by name.
            root: the folder of a named data set's files.
            workers: processes that decode images.
            corrupt: what to do about unreadable images, "error" or "skip".
            loader: options of a DataLoader with which a Dataset is read.
        """
        if isinstance(data, str | Path):
            reading = Reading(
                channels=self.channels, frame=self.frame, vocabulary=self.vocabulary, workers=workers, corrupt=corrupt
            )
            opened = open_unlabelled(str(data), reading=reading, columns=self.columns, root=root)
        else:
            store = self._store(data, loader)
            opened = Unlabelled(store, Positions(len(store)))
        return opened if self.features_of is None else self._features(opened)

    def _store(self, data: Any, loader: Mapping[str, Any] | None) -> InputStore:
        if isinstance(data, Source):
            return data.store
        if isinstance(data, DataLoader):
            data, loader = data.dataset, {**loader_options(data), **(loader or {})}
        if is_dataset(data):
            return self._items(data, loader)
        if self.columns is not None and hasattr(data, "columns"):
            return TensorStore(data[list(self.columns)].to_numpy(dtype=np.float32), self.columns)
        if self.vocabulary is not None and not isinstance(data, Tensor):
            texts = np.asarray(data, dtype=object)
            if texts.ndim == 1 and all(isinstance(text, str) for text in texts):
                return TextStore(texts, self.vocabulary)
        return TensorStore(data)

    def _items(self, dataset: Any, loader: Mapping[str, Any] | None) -> DatasetStore:
        if self.items is not None:
            like = self.items.like(dataset)
            return DatasetStore(dataset, like.layout, {**like.loader, **(loader or {})}, name=like.name)
        layout = None if self.names is None else Layout(None, self.names, closed=True)
        return DatasetStore(dataset, layout, loader)

    def _features(self, opened: Unlabelled) -> Unlabelled:
        """The backbone's features of images. Rows of numbers are taken for features already."""
        assert self.features_of is not None
        example = next(iter(opened.store.batches([torch.zeros(1, dtype=torch.int64)]))) if len(opened.ids) else None
        if isinstance(example, Tensor) and example.dim() <= 2:
            return opened
        name, prepare = self.features_of["network"], Augment.parse(self.features_of.get("prepare"))
        source = Source(opened.store, torch.zeros(len(opened.ids), dtype=torch.int64), self.classes, opened.ids)
        network = backbone(name, source, prepare=prepare, weights=self.features_of.get("weights"), allow_import=False)
        return opened._replace(store=extract(source, network, prepare=prepare, name=name).store)


def _stores(source: Source) -> list[Any]:
    return [store for store in (source.store, getattr(source.store, "files", None), source.shown) if store is not None]


def _channels(store: Any) -> int:
    return int(store.channels) if hasattr(store, "channels") else int(store.tensors.shape[1])

"""Data sets of the Hugging Face `datasets` library on this machine: saved with `save_to_disk`, or an imagefolder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..images import SHORT_SIDE, SIZE, Frame, Reading, pixels_of
from ..source import Source, TensorStore, encode_labels
from .bundle import Bundle


class HuggingFaceImages:
    """Images that the library decodes when they are asked for."""

    def __init__(self, rows: Any, column: str, frame: Frame, channels: int) -> None:
        self.rows, self.column, self.frame, self.channels = rows, column, frame, channels

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        for index in indices:
            images = [self.rows[i][self.column] for i in index.tolist()]
            pixels = np.stack([pixels_of(image, self.frame, self.channels) for image in images])
            yield torch.from_numpy(pixels).float().div_(255)


def hugging_face(path: Path, *, reading: Reading) -> Bundle:
    """Read a data set, or a dict of splits with `train` and perhaps `test`."""
    try:
        import datasets  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise ImportError("the datasets library is not installed; install it with: pip install datasets") from error
    if not path.exists():
        raise FileNotFoundError(
            f"there is no folder {path}; give hf:PATH with what save_to_disk wrote, or an imagefolder"
        )
    saved = (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists()
    found = datasets.load_from_disk(str(path)) if saved else datasets.load_dataset("imagefolder", data_dir=str(path))
    splits = dict(found) if isinstance(found, dict) else {"train": found}
    if "train" not in splits:
        raise ValueError(f"{path} has no split 'train'; it has {', '.join(splits)}")
    frame = reading.frame
    parts: dict[str, Source] = {}
    for name, rows in splits.items():
        if name in ("train", "test"):
            parts[name] = _source(rows, reading, frame, f"{path} ({name})", parts.get("train"))
            frame = getattr(parts[name].store, "frame", None)
    return Bundle(parts["train"], parts.get("test"))


def _source(rows: Any, reading: Reading, frame: Frame | None, name: str, train: Source | None) -> Source:
    features = rows.features
    kinds = {column: type(feature).__name__ for column, feature in features.items()}
    named = [column for column, kind in kinds.items() if kind == "ClassLabel"]
    column = next((column for column in ("label", "labels", *named) if column in kinds), None)
    if column is None:
        raise ValueError(f"{name} has no column 'label'; it has: {', '.join(kinds)}")
    names = train.classes if train is not None else getattr(features[column], "names", None)
    label, classes = encode_labels(np.asarray(rows[column]), names, name)
    ids = tuple(map(str, rows["id"])) if "id" in kinds else tuple(str(number) for number in range(len(label)))
    image = next((column for column, kind in kinds.items() if kind == "Image"), None)
    if image is not None:
        if frame is None:
            sizes = {rows[i][image].size for i in range(min(len(rows), 100))}
            (width, height), one = next(iter(sizes)), len(sizes) == 1
            square = reading.size or SIZE
            keep = one and (reading.size is None or width == height == square)
            frame = Frame(height, width) if keep else Frame(square, square, SHORT_SIDE / SIZE)
        store: Any = HuggingFaceImages(rows, image, frame, reading.channels)
    else:
        numeric = [c for c in kinds if c not in (column, "id") and features[c].dtype.startswith(("float", "int"))]
        if not numeric:
            raise ValueError(f"{name} has neither an image column nor columns of numbers; it has: {', '.join(kinds)}")
        store = TensorStore(np.stack([np.asarray(rows[c], dtype=np.float32) for c in numeric], 1), numeric)
    return Source(store=store, label=label, classes=classes, ids=ids)
